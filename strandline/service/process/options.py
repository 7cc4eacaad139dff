"""What a service is told when it is made: plain values, which travel to a child process as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from fsview.store.stores import StoreOptions
from fsview.table_view import RETAINED_SNAPSHOTS
from strandline.service.http.limits import Limits
from strandline.service.http.server_options import ServerOptions
from strandline.service.marker.conflict_options import ConflictOptions
from strandline.settings import service as config
from strandline.settings.read_limits import read_limits
from strandline.settings.setting import Settings
from timeline.errors import ConfigError
from timeline.storage.read_limits import DEFAULT_LIMITS, ReadLimits

CHECK_INTERVAL_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class PartsOptions:
    """What a service is made of.

    Attributes:
        roots: Tables, or directories of tables, that may be served.
        token: Bearer token; ``None`` admits everybody unless ``admit_networks`` says whom. Never
            shown.
        storage_options: For fsspec.
        gzip: Whether answers are compressed for those who accept it.
        store: Where views are kept, and how much memory they may take.
        retained_snapshots: How many snapshots of each table are kept for clients that are behind.
        check_interval_s: Seconds between two comparisons with storage; 0: none.
        conflicts: How early conflicts of writers are looked for.
        shown: What the status shows of the settings.
        admit_networks: Whose clients need no token, see ``strandline.service.http.authorization``.
        read_limits: How much is read of a table's files at most.
    """

    roots: tuple[str, ...]
    token: str | None = field(default=None, repr=False)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    gzip: bool = True
    store: StoreOptions = field(default_factory=StoreOptions)
    retained_snapshots: int = RETAINED_SNAPSHOTS
    check_interval_s: float = CHECK_INTERVAL_S
    conflicts: ConflictOptions = field(default_factory=ConflictOptions)
    shown: Mapping[str, Any] = field(default_factory=dict, repr=False)
    admit_networks: tuple[str, ...] = ()
    read_limits: ReadLimits = DEFAULT_LIMITS

    @classmethod
    def of(
        cls,
        settings: Settings,
        roots: tuple[str, ...],
        token: str | None,
        *,
        storage_options: Mapping[str, Any] | None,
        store: StoreOptions,
        shown: Mapping[str, Any],
    ) -> PartsOptions:
        """Return what the settings say, of what isn't said otherwise."""
        return cls(
            roots,
            token,
            storage_options,
            store=store,
            gzip=settings.get(config.EMBED_GZIP),
            retained_snapshots=settings.get(config.RETAINED_SNAPSHOTS),
            check_interval_s=settings.get(config.CHECK_INTERVAL),
            conflicts=ConflictOptions.of(settings),
            shown=shown,
            admit_networks=_words(settings.get(config.ADMIT_NETWORKS)),
            read_limits=read_limits(settings),
        )


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
            "conflicts": ConflictOptions(**said["parts"]["conflicts"]),
            "admit_networks": tuple(said["parts"]["admit_networks"]),
            "read_limits": ReadLimits(**said["parts"]["read_limits"]),
        }
        server = {**said["server"], "limits": Limits(**said["server"]["limits"])}
        return cls(PartsOptions(**parts), ServerOptions(**server), said["log_level"])


def _words(text: str) -> tuple[str, ...]:
    """Return the parts of a list in one text."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
