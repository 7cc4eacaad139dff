"""Options of a service: plain values, sent to a child process as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fsview.store.stores import StoreOptions
from strandline.server.http.limits import Limits
from strandline.server.http.server_options import ServerOptions
from strandline.server.marker.conflict import ConflictOptions
from strandline.settings import service as config
from strandline.settings.read_limits import read_limits
from strandline.settings.setting import Settings
from timeline.errors import ConfigError
from timeline.storage.base import DEFAULT_LIMITS, ReadLimits


@dataclass(frozen=True, slots=True)
class PartsOptions:
    """Options of everything but the HTTP server.

    Attributes:
        roots: Tables, or directories of tables, that may be served.
        token: Bearer token; ``None`` admits everybody, or only ``admit_networks`` if there are any.
            Never shown.
        storage_options: For fsspec.
        gzip: Whether answers are compressed for clients that accept it.
        store: Where views are kept, and how much memory they may take.
        retained_snapshots: How many snapshots of each table are kept for clients that are behind.
        check_interval_s: Between two sampling checks; 0: none.
        slow_sync_s: From which on a sync is logged; 0: none is.
        watch_s: Between two looks at a table that is watched; 0: by where it is.
        conflicts: How early conflicts of writers are detected.
        shown: Settings for the status.
        admit_networks: Networks that need no token, see ``strandline.server.http.authorization``.
        read_limits: How much of a table's files is read at most.
        most_open_tables: How many tables may be open, as far as memory allows.
        awaits_roots: Whether the service searches for missing roots until they exist.
        requires_roots: Whether the service is ready only if all roots are.
        ui: Whether there is the page ``/ui/``.
        restarts: How many processes of this service ended before this one, for the status.
    """

    roots: tuple[str, ...]
    token: str | None = field(default=None, repr=False)
    other_token: str | None = field(default=None, repr=False)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    gzip: bool = config.EMBED_GZIP.field()
    store: StoreOptions = field(default_factory=StoreOptions)
    retained_snapshots: int = config.RETAINED_SNAPSHOTS.field()
    check_interval_s: float = config.CHECK_INTERVAL.field()
    slow_sync_s: float = config.SLOW_SYNC.field()
    watch_s: float = config.WATCH.field()
    conflicts: ConflictOptions = field(default_factory=ConflictOptions)
    shown: Mapping[str, Any] = field(default_factory=dict, repr=False)
    admit_networks: str = config.ADMIT_NETWORKS.field()
    read_limits: ReadLimits = DEFAULT_LIMITS
    most_open_tables: int = config.MAX_OPEN_TABLES.field()
    awaits_roots: bool = False
    requires_roots: bool = False
    ui: bool = config.EMBED_UI.field()
    restarts: int = 0

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
        """Return the options from settings and the given values."""
        return settings.read(
            cls,
            roots=roots,
            token=token,
            storage_options=storage_options,
            store=store,
            conflicts=ConflictOptions.of(settings),
            shown=shown,
            read_limits=read_limits(settings),
        )


@dataclass(frozen=True, slots=True)
class Descriptors:
    """File descriptors that a child process inherits, beside its pipes.

    Attributes:
        listener: The listening socket, which the driver keeps open.
        pings: A socket; the child returns each byte that it receives.
    """

    listener: int
    pings: int


@dataclass(frozen=True, slots=True)
class Birth:
    """All options of a service, in a child process its first line of input.

    Attributes:
        parts: Options of everything but the server.
        server: Options of the server.
        descriptors: What a child process inherits; ``None`` in a thread.
    """

    parts: PartsOptions
    server: ServerOptions
    descriptors: Descriptors | None = None

    def with_roots(self, roots: Iterable[str]) -> Birth:
        """Return these options with other roots, each once."""
        return replace(self, parts=replace(self.parts, roots=tuple(dict.fromkeys(roots))))

    def to_line(self) -> bytes:
        """Encode the options as a line of JSON.

        Raises:
            ConfigError: A storage option isn't a plain value.
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
        """Decode ``to_line``."""
        decoded = json.loads(line)
        parts, server = decoded["parts"], decoded["server"]
        parts["roots"] = tuple(parts["roots"])
        store = parts["store"]
        parts["store"] = StoreOptions(**{**store, "urls": tuple(store["urls"])})
        parts["conflicts"] = ConflictOptions(**parts["conflicts"])
        parts["read_limits"] = ReadLimits(**parts["read_limits"])
        server["limits"] = Limits(**server["limits"])
        inherited = decoded["descriptors"]
        descriptors = None if inherited is None else Descriptors(**inherited)
        return cls(PartsOptions(**parts), ServerOptions(**server), descriptors)
