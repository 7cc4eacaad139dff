"""What a service is told when it is made: plain values, which travel to a child process as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from fsview.store.open import StoreOptions
from fsview.table_view import RETAINED_SNAPSHOTS
from strandline import config
from strandline.read_settings import read_limits
from strandline.service.limits import Limits
from strandline.setting import Settings
from timeline.errors import ConfigError
from timeline.storage.read_limits import DEFAULT_LIMITS, ReadLimits

THREADS: Final = 16
CHECK_INTERVAL_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class ConflictOptions:
    """How early conflicts of writers are looked for, see ``strandline.service.conflicts``.

    Attributes:
        enabled: Whether they are; then only for writers that ask for it.
        checks_commits: Whether commits that completed meanwhile count.
        initial_delay_s: Seconds from the first marker of a write to the first look.
        period_s: Seconds from one look to the next.
        max_heartbeat_age_s: A writer that hasn't shown itself for longer is dead.
    """

    enabled: bool = False
    checks_commits: bool = False
    initial_delay_s: float = 0.0
    period_s: float = 30.0
    max_heartbeat_age_s: float = 120.0

    @classmethod
    def of(cls, settings: Settings) -> ConflictOptions:
        """Return what the settings say."""
        misses = settings.get(config.HEARTBEAT_MISSES)
        return cls(
            enabled=settings.get(config.EARLY_CONFLICTS),
            checks_commits=settings.get(config.EARLY_COMMIT_CONFLICTS),
            initial_delay_s=settings.get(config.EARLY_CONFLICTS_DELAY) / 1000,
            period_s=settings.get(config.EARLY_CONFLICTS_PERIOD) / 1000,
            max_heartbeat_age_s=settings.get(config.HEARTBEAT_INTERVAL) * misses / 1000,
        )


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
        admit_networks: Whose clients need no token, see ``strandline.service.admission``.
        read_limits: How much is read of a table's files at most.
    """

    roots: tuple[str, ...]
    token: str | None = field(default=None, repr=False)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    gzip: bool = True
    store: StoreOptions = field(default_factory=StoreOptions)
    retained_snapshots: int = RETAINED_SNAPSHOTS
    check_interval_s: float = CHECK_INTERVAL_S
    conflicts: ConflictOptions = ConflictOptions()
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
class ServerOptions:
    """How its server runs.

    Attributes:
        host: Address to bind; only this one.
        port: 0 takes a free one.
        threads: For what isn't answered on the loop; most that a table has.
        grace_s: How long answers in flight may take at the end.
        keep_alive_s: How long an idle connection is kept.
        limits: What one client may take.
        tls_certificate: File with the certificate; ``None``: plain HTTP.
        tls_key: File with its key.
    """

    host: str = "127.0.0.1"
    port: int = 0
    threads: int = THREADS
    grace_s: float = 1.5
    keep_alive_s: float = 120
    limits: Limits = field(default_factory=Limits)
    tls_certificate: str | None = None
    tls_key: str | None = None

    def url(self, port: int) -> str:
        """Return where a server with these options answers on ``port``."""
        scheme = "http" if self.tls_certificate is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}"

    @classmethod
    def of(cls, settings: Settings, host: str, port: int) -> ServerOptions:
        """Return what the settings say."""
        threads = settings.get(config.EMBED_THREADS)
        return cls(
            host,
            port,
            threads=threads if threads > 0 else THREADS,
            grace_s=settings.get(config.STOP_GRACE),
            keep_alive_s=settings.get(config.KEEP_ALIVE),
            limits=Limits.of(settings),
            tls_certificate=settings.get(config.TLS_CERTIFICATE) or None,
            tls_key=settings.get(config.TLS_KEY) or None,
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
