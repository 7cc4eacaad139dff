"""What ``strandline serve`` can be told: its own settings, and the flag of each that it has.

Each setting is a row of ``strandline.settings.service`` or of ``SERVE_SETTINGS`` here. ``FLAGS`` is
all of them; where their values come from is ``strandline.settings.sources``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.settings import read_limits as read_settings
from strandline.settings import service as config
from strandline.settings.setting import Setting, refusal
from strandline.settings.view_store import TYPES

ROOTS: Final = Setting(
    "strandline.serve.roots",
    "",
    "A table's base path, or a directory of tables, that may be served. Separate several by"
    " commas, or repeat the flag.",
    "service",
)
HOST: Final = Setting("strandline.serve.host", "127.0.0.1", "The one address to bind.", "service")
PORT: Final = Setting(
    "strandline.serve.port",
    26754,
    "Port to bind; the default is that of Hudi's standalone server. 0 takes a free port and prints"
    " it.",
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
    "Admit everybody who reaches the port. Hudi's Java clients can't send a token.",
    "service",
    secret=False,
)
STORAGE_OPTIONS: Final = Setting(
    "strandline.serve.storage.options",
    "",
    'Options for fsspec, for roots that aren\'t local, as a JSON object such as {"endpoint_url":'
    ' "http://minio:9000"}. Give secrets in the file or by a variable: flags are visible to'
    " everybody on the machine.",
    "service",
    secret=True,
)
LOG_LEVEL: Final = Setting(
    "strandline.serve.log.level",
    "INFO",
    "Lowest level of the messages logged to stderr.",
    "service",
    allowed=("DEBUG", "INFO", "WARNING", "ERROR"),
)
LOG_FORMAT: Final = Setting(
    "strandline.serve.log.format",
    "text",
    "Format of log lines: text, or one JSON object a line.",
    "service",
    allowed=("text", "json"),
)
CONFIG: Final = Setting(
    "strandline.serve.config",
    "",
    "File of settings in the format of Java's properties files, one setting a line.",
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
        unit: What the flag's unit is called, where it isn't the setting's.
        repeated: Whether the setting is a list; text of it has commas between.
        about: Takes the place of the setting's ``doc``.
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
                raise refusal(self.name, repr(said), f"; allowed: {allowed}")
            return self.words[said.lower()]
        if self.factor > 1:
            if not re.fullmatch("[0-9]{1,12}", said) or int(said) < 1:
                why = f"; allowed: integer in {self.unit}, 1 or more"
                raise refusal(self.name, repr(said), why)
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
        f"[{'|'.join(TYPES)}]",
        words=TYPES,
        about="Where views are kept: in memory; in memory and a file (spillable); or in RocksDB"
        " (rocksdb), from which a restart continues.",
    ),
    Flag(
        "--store-dir",
        (config.SPILL_DIR, config.ROCKSDB_DIR),
        "DIR",
        about="Directory for the files of spillable and rocksdb; rocksdb needs one.",
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
        "NETWORK[=reads|markers]",
        repeated=True,
        about="A network whose clients need no token, for everything or only for look-ups (=reads)"
        " or markers (=markers). The connection's peer address counts; headers are ignored."
        " Repeat for several.",
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
    Flag("--log-level", (LOG_LEVEL,), "[DEBUG|INFO|WARNING|ERROR]"),
    Flag("--log-format", (LOG_FORMAT,), "[text|json]"),
)
"""Every setting of ``serve``: whoever adds one adds its flag, and it has all three spellings."""
