"""Flags of ``strandline serve``, and the settings that only this command has.

A flag sets one or more settings of this module, ``strandline.settings.service``,
``strandline.settings.fleet`` or ``strandline.settings.read_limits``. Their values are collected by
``strandline.settings.sources``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.settings import fleet as fleet_settings
from strandline.settings import read_limits as read_settings
from strandline.settings import service as config
from strandline.settings.setting import ServiceSetting, Setting, as_text, declared, refusal
from strandline.settings.view_store import TYPES

ROOTS: Final = ServiceSetting(
    "strandline.serve.roots",
    "",
    "A table's base path, or a directory of tables, that may be served. Separate several by"
    " commas, or repeat the flag.",
)
REQUIRE_ROOTS: Final = ServiceSetting(
    "strandline.serve.require.roots",
    False,
    "Refuse to start while a local root is missing, and be ready only while all roots are. Without"
    " it, missing roots are served once they exist, the others at once.",
)
HOST: Final = Setting("strandline.serve.host", "127.0.0.1", "The one address to bind.", "service")
PORT: Final = ServiceSetting(
    "strandline.serve.port",
    26754,
    "Port to bind; the default is that of Hudi's standalone server. 0 takes a free port and prints"
    " it.",
    minimum=0,
    maximum=65535,
)
TOKEN_FILE: Final = ServiceSetting(
    "strandline.serve.token.file",
    "",
    "File with the bearer token that requests must carry.",
    secret=False,
)
NO_TOKEN: Final = ServiceSetting(
    "strandline.serve.no.token",
    False,
    "Admit everybody who reaches the port. Hudi's Java clients can't send a token.",
    secret=False,
)
UI: Final = ServiceSetting(
    "strandline.serve.ui",
    True,
    "Whether there is the page /ui/, which shows the tables and what the service does. Its files"
    " need no token; it asks for one to read data.",
)
STORAGE_OPTIONS: Final = ServiceSetting(
    "strandline.serve.storage.options",
    "",
    'Options for fsspec, for roots that aren\'t local, as a JSON object such as {"endpoint_url":'
    ' "http://minio:9000"}. Give secrets in the file or by a variable: flags are visible to'
    " everybody on the machine.",
    secret=True,
)
DRAIN: Final = ServiceSetting(
    "strandline.serve.drain.secs",
    0.0,
    "Time from SIGTERM to the stop, in which requests are answered and probes fail, so that load"
    " balancers send no more. A second SIGTERM, or SIGINT, ends it.",
    minimum=0,
    maximum=3600,
)
LOG_LEVEL: Final = ServiceSetting(
    "strandline.serve.log.level",
    "INFO",
    "Lowest level of the messages logged to stderr.",
    allowed=("DEBUG", "INFO", "WARNING", "ERROR"),
)
LOG_FORMAT: Final = ServiceSetting(
    "strandline.serve.log.format",
    "text",
    "Format of log lines: text, or one JSON object a line.",
    allowed=("text", "json"),
)
CONFIG: Final = ServiceSetting(
    "strandline.serve.config",
    "",
    "File of settings in the format of Java's properties files, one setting a line.",
)

SERVE_SETTINGS: Final = declared(globals(), fleet_settings)
"""The settings that only ``strandline serve`` has."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How ``serve`` listens, admits and logs.

    Attributes:
        host: Address to bind.
        port: Port to bind; 0: a free one.
        requires_roots: Whether all roots must be there.
        token_file: File with the bearer token; empty: there is none.
        no_token: Whether everybody is admitted.
        ui: Whether there is the page ``/ui/``.
        drain_s: From SIGTERM to the stop.
        log_level: Lowest level that is logged.
        log_format: ``text`` or ``json``.
    """

    host: str = HOST.field()
    port: int = PORT.field()
    requires_roots: bool = REQUIRE_ROOTS.field()
    token_file: str = TOKEN_FILE.field()
    no_token: bool = NO_TOKEN.field()
    ui: bool = UI.field()
    drain_s: float = DRAIN.field()
    log_level: str = LOG_LEVEL.field()
    log_format: str = LOG_FORMAT.field()


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of the command line and the settings that it sets.

    Attributes:
        name: Such as ``--port``.
        settings: The settings that get the flag's value.
        metavar: Placeholder of the value in the help; empty for a flag without a value.
        words: The flag's value → the setting's value, where they differ.
        factor: Size of the flag's unit in the setting's unit.
        unit: Name of the flag's unit, where it isn't the setting's.
        repeated: Whether the setting is a list, separated by commas, and the flag may be repeated.
        about: Help text, in place of the setting's ``doc``.
    """

    name: str
    settings: tuple[Setting[Any], ...]
    metavar: str
    words: Mapping[str, str] | None = None
    factor: int = 1
    unit: str = ""
    repeated: bool = False
    about: str = ""

    @property
    def key(self) -> str:
        """The name as a Python identifier."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def doc(self) -> str:
        """Help text."""
        return self.about or self.settings[0].doc

    @property
    def default(self) -> str:
        """The default as the flag's value; empty if there is none."""
        default = self.settings[0].default
        if self.words:
            return next(word for word, value in self.words.items() if value == default)
        if isinstance(default, bool):
            return as_text(default) if self.metavar else ""
        return str(default // self.factor if self.factor > 1 else default)

    def text(self, given: str) -> str:
        """Return the setting's text for a value given with the flag.

        Raises:
            ConfigError: The value isn't one of ``words``, or not a positive integer.
        """
        if self.words:
            if given.lower() not in self.words:
                allowed = ", ".join(self.words)
                raise refusal(self.name, repr(given), f"; allowed: {allowed}")
            return self.words[given.lower()]
        if self.factor > 1:
            if not re.fullmatch("[0-9]{1,12}", given) or int(given) < 1:
                why = f"; allowed: integer in {self.unit}, 1 or more"
                raise refusal(self.name, repr(given), why)
            return str(int(given) * self.factor)
        return given


FLAGS: Final[tuple[Flag, ...]] = (
    Flag("--config", (CONFIG,), "FILE"),
    Flag(
        "--root",
        (ROOTS,),
        "PATH",
        repeated=True,
        about="Base path of a table, or directory of tables, to serve. Repeat for several.",
    ),
    Flag("--require-roots", (REQUIRE_ROOTS,), ""),
    Flag("--host", (HOST,), "ADDRESS"),
    Flag("--port", (PORT,), "NUMBER"),
    Flag(
        "--storage",
        (config.STORAGE_TYPE,),
        f"[{'|'.join(TYPES)}]",
        words=TYPES,
        about="Where views are kept: in memory; in memory and a file (spillable); in RocksDB"
        " (rocksdb) or an SQL database (sql), from which a restart continues.",
    ),
    Flag(
        "--store-dir",
        (config.SPILL_DIR, config.ROCKSDB_DIR),
        "DIR",
        about="Directory for the files of spillable and rocksdb; rocksdb needs one.",
    ),
    Flag(
        "--store-url",
        (config.STORE_URL,),
        "URL",
        repeated=True,
        about="Database of sql: sqlite:///PATH, a file on this machine, or"
        " postgresql://USER@HOST/DATABASE, which needs the extra fleet. Repeat for several, of"
        " which each table has one. Give a password in the file, by a variable or in PGPASSFILE:"
        " flags are visible to everybody on the machine.",
    ),
    Flag(
        "--memory",
        (config.MEMORY_BYTES,),
        "MIB",
        factor=1 << 20,
        unit="MiB",
        about="Memory for encoded answers, kept snapshots and packed files of all tables together,"
        " in MiB.",
    ),
    Flag("--storage-options", (STORAGE_OPTIONS,), "JSON"),
    Flag("--token-file", (TOKEN_FILE,), "FILE"),
    Flag("--no-token", (NO_TOKEN,), ""),
    Flag(
        "--no-token-from",
        (config.ADMIT_NETWORKS,),
        "NETWORK[=reads|markers|metrics]",
        repeated=True,
        about="A network whose clients need no token, for everything or only for look-ups (=reads),"
        " markers (=markers) or metrics (=metrics). The connection's peer address counts;"
        " headers are ignored. Repeat for several.",
    ),
    Flag("--ui", (UI,), "BOOLEAN"),
    Flag("--tls-certificate", (config.TLS_CERTIFICATE,), "FILE"),
    Flag("--tls-key", (config.TLS_KEY,), "FILE"),
    Flag("--threads", (config.EMBED_THREADS,), "NUMBER"),
    Flag("--gzip", (config.EMBED_GZIP,), "BOOLEAN"),
    Flag("--retained-snapshots", (config.RETAINED_SNAPSHOTS,), "NUMBER"),
    Flag("--metrics-port", (config.METRICS_PORT,), "PORT"),
    Flag("--max-open-tables", (config.MAX_OPEN_TABLES,), "NUMBER"),
    Flag("--check-interval", (config.CHECK_INTERVAL,), "SECONDS"),
    Flag("--slow-sync", (config.SLOW_SYNC,), "SECONDS"),
    Flag("--watch", (config.WATCH,), "SECONDS"),
    Flag("--keep-alive", (config.KEEP_ALIVE,), "SECONDS"),
    Flag("--drain", (DRAIN,), "SECONDS"),
    Flag("--stop-grace", (config.STOP_GRACE,), "SECONDS"),
    Flag("--max-connections", (config.MAX_CONNECTIONS,), "NUMBER"),
    Flag("--max-pipelined", (config.MAX_PIPELINED,), "NUMBER"),
    Flag("--max-request-line", (config.REQUEST_LINE_BYTES,), "BYTES"),
    Flag("--max-header-bytes", (config.HEADER_BYTES,), "BYTES"),
    Flag("--max-headers", (config.HEADER_COUNT,), "NUMBER"),
    Flag("--max-body", (config.BODY_BYTES,), "BYTES"),
    Flag("--max-properties", (read_settings.PROPERTIES_BYTES,), "BYTES"),
    Flag("--max-instant", (read_settings.INSTANT_BYTES,), "BYTES"),
    Flag("--max-archive", (read_settings.ARCHIVE_BYTES,), "BYTES"),
    Flag("--max-markers", (read_settings.MARKERS_BYTES,), "BYTES"),
    Flag("--max-metadata-table", (read_settings.METADATA_TABLE_BYTES,), "BYTES"),
    Flag("--request-timeout", (config.REQUEST_TIMEOUT,), "SECONDS"),
    Flag("--write-timeout", (config.WRITE_TIMEOUT,), "SECONDS"),
    Flag("--early-conflicts", (config.EARLY_CONFLICTS,), "BOOLEAN"),
    Flag("--early-commit-conflicts", (config.EARLY_COMMIT_CONFLICTS,), "BOOLEAN"),
    Flag("--early-conflicts-delay", (config.EARLY_CONFLICTS_DELAY,), "MS"),
    Flag("--early-conflicts-period", (config.EARLY_CONFLICTS_PERIOD,), "MS"),
    Flag("--heartbeat-interval", (config.HEARTBEAT_INTERVAL,), "MS"),
    Flag("--heartbeat-misses", (config.HEARTBEAT_MISSES,), "NUMBER"),
    Flag(
        "--fleet",
        (fleet_settings.FLEET,),
        "URL",
        about=f"{fleet_settings.FLEET.doc} Give a password in the file, by a variable or in"
        " PGPASSFILE.",
    ),
    Flag("--advertise", (fleet_settings.ADVERTISE,), "URL"),
    Flag(
        "--standby",
        (fleet_settings.STANDBY,),
        "",
        about="Wait for the seat of a server that died, instead of getting a new one.",
    ),
    Flag(
        "--router",
        (fleet_settings.ROUTER,),
        "",
        about="Only forward requests to the fleet's servers; without --root.",
    ),
    Flag("--group", (fleet_settings.GROUP,), "NAME"),
    Flag("--rack", (fleet_settings.RACK,), "NAME"),
    Flag("--fleet-copies", (fleet_settings.COPIES,), "NUMBER"),
    Flag("--fleet-depth", (fleet_settings.DEPTH,), "NUMBER"),
    Flag("--fleet-tokens", (fleet_settings.TOKENS,), "NUMBER"),
    Flag("--fleet-heartbeat", (fleet_settings.HEARTBEAT,), "SECONDS"),
    Flag("--fleet-ca", (fleet_settings.CA,), "FILE"),
    Flag("--fleet-dead", (fleet_settings.DEAD,), "SECONDS"),
    Flag("--log-level", (LOG_LEVEL,), "[DEBUG|INFO|WARNING|ERROR]"),
    Flag("--log-format", (LOG_FORMAT,), "[text|json]"),
)
"""Every setting of ``serve``; one with a flag can be set by variable and file, too."""
