"""What a service is told when it is made: plain values, which travel to a child process as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from fsview.store.open import StoreOptions
from fsview.table_view import RETAINED_SNAPSHOTS
from timeline.errors import ConfigError

THREADS: Final = 16
CHECK_INTERVAL_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class PartsOptions:
    """What a service is made of.

    Attributes:
        roots: Tables, or directories of tables, that may be served.
        token: Bearer token; ``None`` admits everybody. Never shown.
        storage_options: For fsspec.
        gzip: Whether answers are compressed for those who accept it.
        store: Where views are kept, and how much memory they may take.
        retained_snapshots: How many snapshots of each table are kept for clients that are behind.
        check_interval_s: Seconds between two comparisons with storage; 0: none.
    """

    roots: tuple[str, ...]
    token: str | None = field(default=None, repr=False)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    gzip: bool = True
    store: StoreOptions = field(default_factory=StoreOptions)
    retained_snapshots: int = RETAINED_SNAPSHOTS
    check_interval_s: float = CHECK_INTERVAL_S


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How its server runs.

    Attributes:
        host: Address to bind; only this one.
        port: 0 takes a free one.
        threads: For what isn't answered on the loop.
        grace_s: How long answers in flight may take at the end.
        keep_alive_s: How long an idle connection is kept.
    """

    host: str = "127.0.0.1"
    port: int = 0
    threads: int = THREADS
    grace_s: float = 1.5
    keep_alive_s: int = 120


@dataclass(frozen=True, slots=True)
class Birth:
    """What a child process is told first."""

    parts: PartsOptions
    server: ServerOptions
    log_level: str = "WARNING"

    def to_line(self) -> bytes:
        """Return the line that says it.

        Raises:
            ConfigError: A storage option is no plain value.
        """
        try:
            return json.dumps(asdict(self)).encode() + b"\n"
        except TypeError as exc:
            raise ConfigError(
                f"storage_options can't be handed to the service's process: {exc}",
                hint="give plain values (text, numbers, lists, maps)",
            ) from exc

    @classmethod
    def of_line(cls, line: bytes) -> Birth:
        """Take the line back."""
        said = json.loads(line)
        parts = {
            **said["parts"],
            "roots": tuple(said["parts"]["roots"]),
            "store": StoreOptions(**said["parts"]["store"]),
        }
        return cls(PartsOptions(**parts), ServerOptions(**said["server"]), said["log_level"])
