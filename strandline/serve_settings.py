"""What ``strandline serve`` can be told, and where from: a flag, a variable, a file.

Each setting is a row of the one table (``strandline.config``) or of ``SERVE_SETTINGS`` here, and
has up to three spellings:

* its flag, as ``FLAGS`` has it;
* a variable of the environment: ``STRANDLINE_`` and the name in capitals with ``_`` for ``.``, less
  a leading ``strandline.``: ``STRANDLINE_SERVE_PORT``, ``STRANDLINE_HOODIE_FILESYSTEM_VIEW_TYPE``;
* its name, in the file that ``--config`` names: Java's properties text, in UTF-8.

A flag goes before a variable, a variable before the file, the file before the default. All are
read, and what isn't known or allowed is refused wherever it stands, also where it is overruled.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from strandline import config
from strandline.config import Setting, Settings, masked
from timeline.errors import ConfigError
from timeline.properties import parse_properties

T = TypeVar("T")
Source = Literal["flag", "environment", "file", "default"]

ROOTS: Final = Setting(
    "strandline.serve.roots",
    "",
    "A table's base path, or a directory of tables, that may be served; several are separated by"
    " commas, or the flag is repeated.",
    "service",
)
HOST: Final = Setting(
    "strandline.serve.host", "127.0.0.1", "Address to bind, only this.", "service"
)
PORT: Final = Setting(
    "strandline.serve.port",
    26754,
    "Port to bind, by default that of Hudi's own standalone server; 0 takes a free one and says"
    " which.",
    "service",
    minimum=0,
    maximum=65535,
)
TOKEN_FILE: Final = Setting(
    "strandline.serve.token.file",
    "",
    "File with the bearer token that every request must carry.",
    "service",
    secret=False,
)
NO_TOKEN: Final = Setting(
    "strandline.serve.no.token",
    False,
    "Admit everybody who reaches the port. Java clients need this: they can't send a token.",
    "service",
    secret=False,
)
STORAGE_OPTIONS: Final = Setting(
    "strandline.serve.storage.options",
    "",
    "For fsspec, for roots that aren't local: a JSON object such as"
    ' {"endpoint_url": "http://minio:9000"}. Secrets in it belong into the file or a variable, as'
    " everybody on the machine can see flags.",
    "service",
    secret=True,
)
LOG_LEVEL: Final = Setting(
    "strandline.serve.log.level",
    "INFO",
    "How much is logged to stderr.",
    "service",
    allowed=("DEBUG", "INFO", "WARNING", "ERROR"),
)
LOG_FORMAT: Final = Setting(
    "strandline.serve.log.format",
    "text",
    "What a line of the log is: text, or a JSON object.",
    "service",
    allowed=("text", "json"),
)
CONFIG: Final = Setting(
    "strandline.serve.config",
    "",
    "File of settings, as Java's properties: each by its name, one a line.",
    "service",
)

SERVE_SETTINGS: Final[tuple[Setting[Any], ...]] = (
    ROOTS,
    HOST,
    PORT,
    TOKEN_FILE,
    NO_TOKEN,
    STORAGE_OPTIONS,
    LOG_LEVEL,
    LOG_FORMAT,
    CONFIG,
)
"""What only ``strandline serve`` can be told."""


@dataclass(frozen=True, slots=True)
class Flag:
    """How a setting is spelled on the command line.

    Attributes:
        name: Such as ``--port``.
        settings: What it sets; more than one if they are to the flag what it is for.
        metavar: What stands for the value in the help; empty: the flag has none and means true.
        words: What the flag calls the setting's values, if other than these.
        factor: The flag's unit, in that of the setting.
        repeated: Whether the setting is a list; text of it has commas between.
        about: Takes the place of the setting's ``doc``.
    """

    name: str
    settings: tuple[Setting[Any], ...]
    metavar: str
    words: Mapping[str, str] | None = None
    factor: int = 1
    repeated: bool = False
    about: str = ""

    @property
    def key(self) -> str:
        """The name as a word of Python."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def doc(self) -> str:
        """What it is for."""
        return self.about or self.settings[0].doc

    @property
    def default(self) -> str:
        """The default as one would write it with the flag; empty: none."""
        default = self.settings[0].default
        if self.words:
            return next(word for word, value in self.words.items() if value == default)
        if isinstance(default, bool):
            return str(default).lower() if self.metavar else ""
        return str(default // self.factor if self.factor > 1 else default)

    def text(self, said: str) -> str:
        """Return the setting's text for what was said with the flag.

        Raises:
            ConfigError: It is no word of this flag, or no number.
        """
        if self.words:
            if said.lower() not in self.words:
                allowed = ", ".join(self.words)
                raise ConfigError(f"{self.name} is {said!r}; allowed: {allowed}")
            return self.words[said.lower()]
        if self.factor > 1:
            if not re.fullmatch("[0-9]{1,12}", said) or int(said) < 1:
                raise ConfigError(f"{self.name} is {said!r}; allowed: integer, 1 or more")
            return str(int(said) * self.factor)
        return said


FLAGS: Final[tuple[Flag, ...]] = (
    Flag("--config", (CONFIG,), "FILE"),
    Flag(
        "--root",
        (ROOTS,),
        "PATH",
        repeated=True,
        about="A table's base path, or a directory of tables, that may be served. Repeat for"
        " several.",
    ),
    Flag("--host", (HOST,), "ADDRESS"),
    Flag("--port", (PORT,), "NUMBER"),
    Flag(
        "--storage",
        (config.STORAGE_TYPE,),
        "[memory|spillable|rocksdb]",
        words={
            "memory": "MEMORY",
            "spillable": "SPILLABLE_DISK",
            "rocksdb": "EMBEDDED_KV_STORE",
        },
        about="Where views are kept: memory, memory and a file (spillable), or RocksDB (rocksdb),"
        " from which a restart goes on.",
    ),
    Flag(
        "--store-dir",
        (config.SPILL_DIR, config.ROCKSDB_DIR),
        "DIR",
        about="Directory for kinds of storage that keep files; rocksdb needs one, memory none.",
    ),
    Flag(
        "--memory",
        (config.MEMORY_BYTES,),
        "MIB",
        factor=1 << 20,
        about="What answers, old snapshots and packed files may take in memory, in MiB.",
    ),
    Flag("--storage-options", (STORAGE_OPTIONS,), "JSON"),
    Flag("--token-file", (TOKEN_FILE,), "FILE"),
    Flag("--no-token", (NO_TOKEN,), ""),
    Flag(
        "--no-token-from",
        (config.ADMIT_NETWORKS,),
        "NETWORK[=reads|markers]",
        repeated=True,
        about="A network whose clients need no token: for everything, for look-ups, or for markers."
        " The peer of the connection counts, whatever its headers say. Repeat for several.",
    ),
    Flag("--tls-certificate", (config.TLS_CERTIFICATE,), "FILE"),
    Flag("--tls-key", (config.TLS_KEY,), "FILE"),
    Flag("--threads", (config.EMBED_THREADS,), "NUMBER"),
    Flag("--gzip", (config.EMBED_GZIP,), "BOOLEAN"),
    Flag("--retained-snapshots", (config.RETAINED_SNAPSHOTS,), "NUMBER"),
    Flag("--check-interval", (config.CHECK_INTERVAL,), "SECONDS"),
    Flag("--keep-alive", (config.KEEP_ALIVE,), "SECONDS"),
    Flag("--stop-grace", (config.STOP_GRACE,), "SECONDS"),
    Flag("--max-connections", (config.MAX_CONNECTIONS,), "NUMBER"),
    Flag("--max-pipelined", (config.MAX_PIPELINED,), "NUMBER"),
    Flag("--max-request-line", (config.REQUEST_LINE_BYTES,), "BYTES"),
    Flag("--max-header-bytes", (config.HEADER_BYTES,), "BYTES"),
    Flag("--max-headers", (config.HEADER_COUNT,), "NUMBER"),
    Flag("--max-body", (config.BODY_BYTES,), "BYTES"),
    Flag("--request-timeout", (config.REQUEST_TIMEOUT,), "SECONDS"),
    Flag("--write-timeout", (config.WRITE_TIMEOUT,), "SECONDS"),
    Flag("--early-conflicts", (config.EARLY_CONFLICTS,), "BOOLEAN"),
    Flag("--early-commit-conflicts", (config.EARLY_COMMIT_CONFLICTS,), "BOOLEAN"),
    Flag("--early-conflicts-delay", (config.EARLY_CONFLICTS_DELAY,), "MS"),
    Flag("--early-conflicts-period", (config.EARLY_CONFLICTS_PERIOD,), "MS"),
    Flag("--heartbeat-interval", (config.HEARTBEAT_INTERVAL,), "MS"),
    Flag("--heartbeat-misses", (config.HEARTBEAT_MISSES,), "NUMBER"),
    Flag("--log-level", (LOG_LEVEL,), "[DEBUG|INFO|WARNING|ERROR]"),
    Flag("--log-format", (LOG_FORMAT,), "[text|json]"),
)
"""Every setting of ``serve``: whoever adds one adds its flag, and it has all three spellings."""

_SETTINGS: Final = {setting.name: setting for flag in FLAGS for setting in flag.settings}
_LISTS: Final = {setting.name for flag in FLAGS if flag.repeated for setting in flag.settings}


def variable(setting: Setting[Any]) -> str:
    """Return the name that a setting has in the environment."""
    return _PREFIX + setting.name.removeprefix("strandline.").replace(".", "_").upper()


_PREFIX: Final = "STRANDLINE_"
_BY_VARIABLE: Final = {variable(setting): setting for setting in _SETTINGS.values()}
_LINK: Final = re.compile(
    r"STRANDLINE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?"
    r"|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""What Kubernetes puts into every container for a Service of this name."""


@dataclass(frozen=True, slots=True)
class _Said:
    """One setting as somebody gave it."""

    setting: Setting[Any]
    key: str
    source: Source
    parts: tuple[str, ...]


class ServeSettings:
    """What ``serve`` was told: values, and where each came from."""

    def __init__(self, said: Mapping[str, _Said]) -> None:
        self._said = said
        self.values = Settings.parse(
            {name: ",".join(one.parts) for name, one in said.items()}, _SETTINGS.values()
        )

    @classmethod
    def read(
        cls, flags: Mapping[str, str | tuple[str, ...]], environment: Mapping[str, str]
    ) -> ServeSettings:
        """Read all sources.

        Args:
            flags: By ``Flag.key``, those that were given.
            environment: Of the process.

        Raises:
            ConfigError: A setting isn't known or its value not allowed; or the file can't be read.
        """
        above = (*_of_environment(environment), *_of_flags(flags))
        named = [one for one in above if one.setting is CONFIG]
        from_file = tuple(_of_file(named[-1])) if named else ()
        said: dict[str, _Said] = {}
        for one in (*from_file, *above):
            for part in one.parts:
                one.setting.parse(part, one.key)
                if "\0" in part:
                    raise ConfigError(f"{one.key} holds a NUL; allowed: text without one")
            said[one.setting.name] = one
        return cls(said)

    def get(self, setting: Setting[T]) -> T:
        """Return the value of a setting."""
        return self.values.get(setting)

    def many(self, setting: Setting[str]) -> tuple[str, ...]:
        """Return the parts of a setting that is a list."""
        said = self._said.get(setting.name)
        return () if said is None else said.parts

    def source(self, setting: Setting[Any]) -> Source:
        """Return where a setting's value is from."""
        said = self._said.get(setting.name)
        return "default" if said is None else said.source

    def key(self, setting: Setting[Any]) -> str:
        """Return what whoever gave a setting calls it; its name when nobody did."""
        said = self._said.get(setting.name)
        return setting.name if said is None else said.key

    def redacted(self) -> dict[str, dict[str, str]]:
        """Return every setting by name, with its value and where that is from; secrets as stars."""
        shown_ones = self.values.shown(_SETTINGS.values())
        return {
            name: {**row, "from": self.source(_SETTINGS[name])} for name, row in shown_ones.items()
        }


def _of_flags(flags: Mapping[str, str | tuple[str, ...]]) -> Iterator[_Said]:
    for flag in FLAGS:
        if flag.key not in flags:
            continue
        given = flags[flag.key]
        parts = (given,) if isinstance(given, str) else given
        for setting in flag.settings:
            yield _Said(setting, flag.name, "flag", tuple(map(flag.text, parts)))


def _of_environment(environment: Mapping[str, str]) -> Iterator[_Said]:
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in environment
    for name, text in environment.items():
        if not name.startswith(_PREFIX):
            continue
        setting = _BY_VARIABLE.get(name)
        if setting is not None:
            yield _Said(setting, name, "environment", _parts(setting, text))
        elif not (in_kubernetes and _LINK.fullmatch(name)):
            raise _unknown(f"the variable {name}", name, text, tuple(_BY_VARIABLE))


def _of_file(config: _Said) -> Iterator[_Said]:
    path = Path(",".join(config.parts))
    try:
        options = parse_properties(path.read_bytes().decode("utf-8-sig"))
    except OSError as exc:
        raise ConfigError(f"{config.key} {path}: {exc.strerror or 'not readable'}") from exc
    except ValueError as exc:
        raise ConfigError(f"{config.key} {path}: it must be Java's properties in UTF-8") from exc
    known = {name: setting for name, setting in _SETTINGS.items() if setting is not CONFIG}
    for name, text in options.items():
        setting = known.get(name)
        if setting is None:
            raise _unknown(f"{path}: {name}", name, text, tuple(known))
        yield _Said(setting, f"{path}: {name}", "file", _parts(setting, text))


def _parts(setting: Setting[Any], text: str) -> tuple[str, ...]:
    if setting.name not in _LISTS:
        return (text,)
    return tuple(part.strip() for part in text.split(","))


def _unknown(where: str, name: str, text: str, known: tuple[str, ...]) -> ConfigError:
    near = difflib.get_close_matches(name, known, 1, 0.6)
    meant = f" (did you mean {near[0]}?)" if near else ""
    value = masked(name, repr(text))
    return ConfigError(f"{where} is {value}, and no setting{meant}; allowed: {', '.join(known)}")
