"""The settings: what each is called, what it may be, its default, and whom it concerns.

A setting is one ``Setting`` in one table. Names that Hudi has are Hudi's (``hoodie.*``), with
Hudi's defaults unless ``doc`` says why not; what only Strandline has begins with ``strandline.``.
Options reach us as text, as Spark and properties files give them; ``Settings.parse`` turns them
into values once, at the door, and nothing below this module looks at raw options or into the
environment.

``scope`` says who reads a setting: the *service* (one value for all its tables), a *table*, the
*client* that writes (the driver), or its *executors*. ``SERVICE_SETTINGS`` is the service's part
of the table; the writer adds entries of the same kind (``strandline.write.settings``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar, cast

from fsview.store.open import BUDGET_BYTES
from fsview.table_view import RETAINED_SNAPSHOTS as KEPT_SNAPSHOTS
from timeline.errors import ConfigError

T = TypeVar("T")

Scope = Literal["service", "table", "client", "executor"]
Unit = Literal["", "ms", "s", "bytes", "rows", "threads", "days"]

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_TYPE_NAMES: Final[Mapping[type[object], str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
}
_SECRET_WORDS: Final = ("token", "secret", "password", "credential", "access.key")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One row of the table.

    Attributes:
        name: The option's full name.
        default: Its value when the option is absent; its type is the setting's type.
        doc: One sentence for the reader of the documentation.
        scope: Who reads it.
        unit: Of a number; empty for a plain count or for text.
        allowed: The values that a text may have; compared without regard to case. Empty: any.
        minimum: The least value that a number may have.
        maximum: The greatest.
    """

    name: str
    default: T
    doc: str
    scope: Scope
    unit: Unit = ""
    allowed: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    @property
    def type_name(self) -> str:
        """The type as the documentation calls it."""
        return _TYPE_NAMES[type(self.default)]

    @property
    def is_secret(self) -> bool:
        """Whether its value must not be shown."""
        return _is_secret(self.name)

    def parse(self, text: str) -> T:
        """Return the value that ``text`` stands for.

        Raises:
            ConfigError: It isn't a value of this setting; the message names the setting, the value
                and what is allowed.
        """
        try:
            value = _convert(text.strip(), type(self.default))
        except ValueError:
            raise self._refusal(text) from None
        if isinstance(value, str):
            value = self._one_of(value)
        elif not self._in_range(value):
            raise self._refusal(text)
        return cast("T", value)

    def _in_range(self, value: float) -> bool:
        """Whether a number lies between the bounds; NaN doesn't."""
        least = -math.inf if self.minimum is None else self.minimum
        greatest = math.inf if self.maximum is None else self.maximum
        return least <= value <= greatest

    def _one_of(self, value: str) -> str:
        if not self.allowed:
            return value
        for name in self.allowed:
            if name.lower() == value.lower():
                return name
        raise self._refusal(value)

    def _refusal(self, text: str) -> ConfigError:
        shown = "***" if self.is_secret else repr(text)
        return ConfigError(f"{self.name} is {shown}; allowed: {self.describe_allowed()}")

    def describe_allowed(self) -> str:
        """Return in words what the setting may be."""
        if self.allowed:
            return ", ".join(self.allowed)
        if isinstance(self.default, bool):
            return "true, false"
        words = f"{self.type_name} in {self.unit}" if self.unit else self.type_name
        if self.minimum is not None and self.maximum is not None:
            return f"{words}, {self.minimum:g} to {self.maximum:g}"
        if self.minimum is not None:
            return f"{words}, {self.minimum:g} or more"
        return words


def _convert(text: str, kind: type[object]) -> bool | int | float | str:
    """Return ``text`` as a value of ``kind``, or raise ``ValueError``."""
    if kind is bool:
        lowered = text.lower()
        if lowered not in _TRUE | _FALSE:
            raise ValueError(text)
        return lowered in _TRUE
    if kind is int:
        return int(text)
    return float(text) if kind is float else text


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)


class Settings:
    """Options that were read once: typed values by setting, and what no setting claims.

    Attributes:
        other: Options that aren't in the table, as they came; Spark jobs bring many for others.
    """

    def __init__(self, values: Mapping[str, object], other: Mapping[str, str]) -> None:
        self._values = dict(values)
        self.other = dict(other)

    @classmethod
    def parse(cls, options: Mapping[str, object], table: Iterable[Setting[Any]]) -> Settings:
        """Read the options that ``table`` knows.

        Args:
            options: Name to text; a value that isn't text is taken as ``str(value)``.
            table: Settings to look for.

        Raises:
            ConfigError: A value isn't allowed.
        """
        known = {setting.name: setting for setting in table}
        values: dict[str, object] = {}
        other: dict[str, str] = {}
        for name, value in options.items():
            setting = known.get(name)
            if setting is None:
                other[name] = str(value)
            elif value is not None:
                values[name] = setting.parse(str(value))
        return cls(values, other)

    def get(self, setting: Setting[T]) -> T:
        """Return the value of ``setting``: the option's, or the default."""
        return cast("T", self._values.get(setting.name, setting.default))

    def is_set(self, setting: Setting[T]) -> bool:
        """Whether the options named this setting."""
        return setting.name in self._values

    def redacted(self) -> Iterator[tuple[str, str]]:
        """Yield what was set, by name, with secrets starred out; for logs and status pages."""
        for name in sorted({**self._values, **self.other}):
            value = self._values.get(name, self.other.get(name))
            yield name, "***" if _is_secret(name) else str(value)


EMBED: Final = Setting(
    "hoodie.embed.timeline.server",
    True,
    "Whether the writer runs a timeline service for its executors; without it each executor lists.",
    "client",
)
EMBED_PORT: Final = Setting(
    "hoodie.embed.timeline.server.port",
    0,
    "Port of the embedded service; 0 takes a free one.",
    "service",
    minimum=0,
    maximum=65535,
)
EMBED_HOST: Final = Setting(
    "strandline.embed.timeline.server.host",
    "",
    "Address that the embedded service binds; empty takes the driver's (spark.driver.host).",
    "service",
)
EMBED_REUSE: Final = Setting(
    "hoodie.embed.timeline.server.reuse.enabled",
    True,
    "Whether the tables of one driver share one service. Hudi's default is false; ours is true:"
    " a service holds each table apart, and a process a table costs memory for nothing.",
    "service",
)
EMBED_THREADS: Final = Setting(
    "hoodie.embed.timeline.server.threads",
    -1,
    "Threads for requests that aren't answered from ready bytes; -1 chooses 16.",
    "service",
    unit="threads",
    minimum=-1,
    maximum=1024,
)
EMBED_GZIP: Final = Setting(
    "hoodie.embed.timeline.server.gzip",
    True,
    "Whether answers of 1500 bytes and more are compressed for clients that accept it.",
    "service",
)
STORAGE_TYPE: Final = Setting(
    "hoodie.filesystem.view.type",
    "MEMORY",
    "Where the service keeps its views: in memory, in memory and a file, or in RocksDB, from which"
    " a restart goes on. The remote kinds mean memory, as they do to Hudi's embedded server.",
    "service",
    allowed=("MEMORY", "SPILLABLE_DISK", "EMBEDDED_KV_STORE", "REMOTE_FIRST", "REMOTE_ONLY"),
)
SPILL_DIR: Final = Setting(
    "hoodie.filesystem.view.spillable.dir",
    "",
    "Directory for the file of SPILLABLE_DISK; empty takes the system's for temporary files.",
    "service",
)
ROCKSDB_DIR: Final = Setting(
    "hoodie.filesystem.view.rocksdb.base.path",
    "",
    "Directory for EMBEDDED_KV_STORE, with a store for each table. Hudi's default is one that all"
    " users of a machine share, and is emptied at every start; empty takes one of this user, below"
    " the system's directory for temporary files.",
    "service",
)
MEMORY_BYTES: Final = Setting(
    "strandline.service.memory.max.bytes",
    BUDGET_BYTES,
    "What the service may hold in memory of all its tables: encoded answers, snapshots for clients"
    " that are behind, packed files. They go in this order; packed files go to where the view type"
    " says.",
    "service",
    unit="bytes",
    minimum=1 << 20,
)
RETAINED_SNAPSHOTS: Final = Setting(
    "strandline.view.retained.snapshots",
    KEPT_SNAPSHOTS,
    "Snapshots of one table that are kept for clients that are behind.",
    "service",
    minimum=1,
)
CHECK_INTERVAL: Final = Setting(
    "strandline.service.check.interval.secs",
    300.0,
    "How often the service compares one loaded partition of one table with storage, tables in turn,"
    " partitions by chance; a table that differs is loaded anew. 0 turns it off.",
    "service",
    unit="s",
    minimum=0,
    maximum=86400,
)
STOP_GRACE: Final = Setting(
    "strandline.service.stop.grace.secs",
    1.5,
    "How long answers in flight may take when the service is stopped.",
    "service",
    unit="s",
    minimum=0,
    maximum=60,
)
KEEP_ALIVE: Final = Setting(
    "strandline.service.keep.alive.secs",
    120,
    "How long an idle connection is kept; executors keep theirs between tasks.",
    "service",
    unit="s",
    minimum=1,
)
REMOTE_TIMEOUT: Final = Setting(
    "hoodie.filesystem.view.remote.timeout.secs",
    300,
    "How long an executor waits for one answer of the service.",
    "executor",
    unit="s",
    minimum=1,
)
BACKUP_VIEW: Final = Setting(
    "hoodie.filesystem.remote.backup.view.enable",
    True,
    "Whether executors list the partition themselves when the service can't be reached.",
    "executor",
)

SERVICE_SETTINGS: Final[tuple[Setting[Any], ...]] = (
    EMBED,
    EMBED_PORT,
    EMBED_HOST,
    EMBED_REUSE,
    EMBED_THREADS,
    EMBED_GZIP,
    STORAGE_TYPE,
    SPILL_DIR,
    ROCKSDB_DIR,
    MEMORY_BYTES,
    RETAINED_SNAPSHOTS,
    CHECK_INTERVAL,
    STOP_GRACE,
    KEEP_ALIVE,
    REMOTE_TIMEOUT,
    BACKUP_VIEW,
)
"""What the service, and its clients as far as the service is concerned, can be told."""
