"""Settings of the service, embedded in a driver or on its own.

Settings that Hudi has keep Hudi's name (``hoodie.*``) and default; where the default differs,
``doc`` says why. Settings that only Strandline has begin with ``strandline.``.

``scope`` names the reader of a setting: the *service* (one value for all its tables), a *table*,
the writing *client* in the driver, or its *executors*.
"""

from __future__ import annotations

from typing import Final

from fsview.store import budget
from strandline.settings import lookup, read_limits
from strandline.settings.host import HostSetting
from strandline.settings.setting import ClientSetting, ExecutorSetting, ServiceSetting, declared

EMBED: Final = ClientSetting(
    "hoodie.embed.timeline.server",
    True,
    "Whether the writer starts a timeline service. Without it the driver lists the partitions of"
    " each write.",
)
EMBED_PORT: Final = ServiceSetting(
    "hoodie.embed.timeline.server.port",
    0,
    "Port of the embedded service; 0: a free one. If a fixed port is taken, storage is listed.",
    minimum=0,
    maximum=65535,
)
EMBED_HOST: Final = HostSetting(
    "strandline.embed.timeline.server.host",
    "",
    "Host name or address at which executors reach the embedded service; if empty, the driver's"
    " (spark.driver.host).",
)
EMBED_BIND: Final = HostSetting(
    "strandline.embed.timeline.server.bind.address",
    "",
    "Address that the embedded service binds; if empty, spark.driver.bindAddress, or where that"
    " isn't set, the address at which executors reach the service.",
)
EMBED_LINGER: Final = ServiceSetting(
    "strandline.embed.timeline.server.linger.secs",
    0.0,
    "Time for which the shared service keeps a table, and so itself, for the next client after its"
    " last one was closed.",
    minimum=0,
    maximum=86400,
)
EMBED_UI: Final = ServiceSetting(
    "strandline.embed.timeline.server.ui",
    False,
    "Whether the embedded service has the page /ui/, which shows its tables and what it does.",
)
EMBED_PING_TIMEOUT: Final = ServiceSetting(
    "strandline.embed.timeline.server.ping.timeout.secs",
    10.0,
    "Time after which the driver replaces a process of its service that answers no ping.",
    minimum=0.1,
    maximum=3600,
)
EMBED_REUSE: Final = ServiceSetting(
    "hoodie.embed.timeline.server.reuse.enabled",
    True,
    "Whether the tables of one driver share one service. Hudi's default is false. Ours is true,"
    " because a service keeps tables apart and a process for each table only costs memory.",
)
EMBED_THREADS: Final = ServiceSetting(
    "hoodie.embed.timeline.server.threads",
    -1,
    "Threads for requests that aren't answered from ready bytes; -1 means 16. A single table may"
    " use all of them; beside other tables it leaves 4 free, and a table without a thread gets one"
    " of 16 extra threads.",
    unit="threads",
    minimum=-1,
    maximum=1024,
)
EMBED_GZIP: Final = ServiceSetting(
    "hoodie.embed.timeline.server.gzip",
    True,
    "Whether answers of 1500 bytes or more (in columns: of 256 KB or more) are compressed for"
    " clients that accept gzip.",
)
STORAGE_TYPE: Final = ServiceSetting(
    "hoodie.filesystem.view.type",
    "MEMORY",
    "Where the service keeps its views: in memory, in memory and a file, in RocksDB or in an SQL"
    " database; from the last two a restart continues. The remote kinds mean memory, as for Hudi's"
    " embedded server, and Hudi doesn't have SQL.",
    allowed=("MEMORY", "SPILLABLE_DISK", "EMBEDDED_KV_STORE", "SQL", "REMOTE_FIRST", "REMOTE_ONLY"),
)
SPILL_DIR: Final = ServiceSetting(
    "hoodie.filesystem.view.spillable.dir",
    "",
    "Directory for the file of SPILLABLE_DISK; if empty, the system's directory for temporary"
    " files.",
)
ROCKSDB_DIR: Final = ServiceSetting(
    "hoodie.filesystem.view.rocksdb.base.path",
    "",
    "Directory for EMBEDDED_KV_STORE, which has a store for each table. If empty, a directory of"
    " the current user below the system's directory for temporary files. Hudi's default is shared"
    " by all users of a machine and emptied at every start.",
)
STORE_URL: Final = ServiceSetting(
    "strandline.view.store.url",
    "",
    "Database of SQL: sqlite:///PATH, a file on this machine, or postgresql://USER@HOST/DATABASE,"
    " which needs the extra fleet. Of several, separated by commas, each table has one. libpq also"
    " finds passwords in PGPASSFILE or PGPASSWORD.",
    secret=True,
)
MEMORY_BYTES: Final = ServiceSetting(
    "strandline.service.memory.max.bytes",
    budget.BUDGET_BYTES,
    "Memory of the service for all its tables: encoded answers, snapshots kept for clients that"
    " are behind, packed files. When it is exceeded they are freed in this order; packed files"
    " move to where the view type keeps them.",
    unit="bytes",
    minimum=1 << 20,
)
RETAINED_SNAPSHOTS: Final = ServiceSetting(
    "strandline.view.retained.snapshots",
    budget.RETAINED_SNAPSHOTS,
    "Snapshots of each table that are kept for clients that are behind.",
    minimum=1,
)
METRICS_PORT: Final = ServiceSetting(
    "strandline.service.metrics.port",
    -1,
    "Another port that the service listens on, for /metrics and probes alone; 0: a free one, -1:"
    " none. /metrics is on the service's port, too.",
    minimum=-1,
    maximum=65535,
)
MAX_OPEN_TABLES: Final = ServiceSetting(
    "strandline.service.open.tables.max",
    budget.MOST_OPEN,
    "Most tables that are open at a time, as far as half of the memory suffices (32 KiB for each;"
    " 288 KiB with EMBEDDED_KV_STORE). Beyond it, those used least recently are closed: the next"
    " request opens them again, from their record where the view type has one.",
    minimum=1,
)
CHECK_INTERVAL: Final = ServiceSetting(
    "strandline.service.check.interval.secs",
    300.0,
    "Interval at which the service compares one random loaded partition of one table with storage,"
    " the tables in turn. A table that differs is reloaded. 0 turns the check off.",
    minimum=0,
    maximum=86400,
)
SLOW_SYNC: Final = ServiceSetting(
    "strandline.service.slow.sync.secs",
    10.0,
    "Time from which on a read of a table's timeline is logged as slow, with its cause and the"
    " request that it was for. 0: none is.",
    minimum=0,
    maximum=86400,
)
WATCH: Final = ServiceSetting(
    "strandline.service.watch.secs",
    0.0,
    "Time after which a table's newest state is read again for requests to /v2, once for all who"
    " watch the table; 0: 1 s on disks, 10 s on object stores. Commits that tell the service are"
    " seen at once.",
    minimum=0,
    maximum=86400,
)
STOP_GRACE: Final = ServiceSetting(
    "strandline.service.stop.grace.secs",
    1.5,
    "Time that answers in flight get when the service stops.",
    minimum=0,
    maximum=60,
)
KEEP_ALIVE: Final = ServiceSetting(
    "strandline.service.keep.alive.secs",
    120,
    "Time after which an idle connection is closed. Executors keep theirs between tasks.",
    minimum=1,
)
REQUEST_LINE_BYTES: Final = ServiceSetting(
    "strandline.service.request.line.max.bytes",
    4 << 20,
    "Longest request target; a longer one is answered with 414. Hudi's clients send partitions and"
    " instants in it.",
    unit="bytes",
    minimum=1024,
)
HEADER_BYTES: Final = ServiceSetting(
    "strandline.service.header.max.bytes",
    64 << 10,
    "Maximum total size of a request's headers; more is answered with 431.",
    unit="bytes",
    minimum=1024,
)
HEADER_COUNT: Final = ServiceSetting(
    "strandline.service.header.max.count",
    100,
    "Maximum number of headers of a request; more is answered with 431.",
    minimum=16,
)
BODY_BYTES: Final = ServiceSetting(
    "strandline.service.body.max.bytes",
    1 << 20,
    "Longest body of a request; a longer one is answered with 413. Only batched look-ups have one.",
    unit="bytes",
    minimum=0,
)
REQUEST_TIMEOUT: Final = ServiceSetting(
    "strandline.service.request.timeout.secs",
    60.0,
    "Time in which a request must arrive completely, and in which a new connection must send one;"
    " then the connection is closed.",
    minimum=0.1,
    maximum=86400,
)
WRITE_TIMEOUT: Final = ServiceSetting(
    "strandline.service.write.timeout.secs",
    60.0,
    "Time in which a client must accept some part of its answer; then the connection is cut off.",
    minimum=0.1,
    maximum=86400,
)
MAX_CONNECTIONS: Final = ServiceSetting(
    "strandline.service.connections.max",
    8192,
    "Most connections at a time, as far as the limit of open files allows. A further one replaces"
    " those that have been idle longest; if none is idle, it is answered with 503.",
    minimum=1,
)
MAX_PIPELINED: Final = ServiceSetting(
    "strandline.service.pipelined.max",
    64,
    "Most requests of one connection that may wait. While there are as many, nothing more is read"
    " from it.",
    minimum=1,
)
ADMIT_NETWORKS: Final = ServiceSetting(
    "strandline.service.admit.networks",
    "",
    "Networks whose clients need no token, separated by commas: NETWORK for everything,"
    " NETWORK=reads for look-ups, NETWORK=markers for markers. The connection's peer address"
    " counts; headers are ignored.",
)
TLS_CERTIFICATE: Final = ServiceSetting(
    "strandline.service.http.tls.certificate",
    "",
    "PEM file with the service's certificate and its chain. With it the service speaks https only,"
    " which Hudi's Java clients don't.",
)
TLS_KEY: Final = ServiceSetting(
    "strandline.service.http.tls.key",
    "",
    "PEM file with the certificate's private key, without a password.",
)
TLS_CA: Final = ExecutorSetting(
    "strandline.service.http.tls.ca",
    "",
    "PEM file with the authorities that executors trust when the service has a certificate; if"
    " empty, the system's.",
)
TLS: Final = ServiceSetting(
    "strandline.service.tls",
    "off",
    "Whether the service that a driver starts makes a certificate for itself, of which tasks check"
    " the fingerprint before they send anything: auto, or off. Needs the extra strandline[tls] at"
    " the driver; a service of serve takes a certificate instead.",
    allowed=("auto", "off"),
)
EARLY_CONFLICTS: Final = ServiceSetting(
    "hoodie.write.concurrency.early.conflict.detection.enable",
    False,
    "Whether the service detects conflicts between writers by their markers, and refuses the"
    " markers of the later one. Only writers that have this setting on too are refused.",
)
EARLY_COMMIT_CONFLICTS: Final = ServiceSetting(
    "hoodie.write.concurrency.early.conflict.check.commit.conflict",
    False,
    "Whether commits that complete after a write's first marker count as conflicts too.",
)
EARLY_CONFLICTS_DELAY: Final = ServiceSetting(
    "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms",
    0,
    "Time from a write's first marker to the first check for conflicts.",
    minimum=0,
)
EARLY_CONFLICTS_PERIOD: Final = ServiceSetting(
    "hoodie.write.concurrency.async.conflict.detector.period_ms",
    30000,
    "Time from one check for conflicts to the next.",
    minimum=1,
)
HEARTBEAT_INTERVAL: Final = ServiceSetting(
    "hoodie.client.heartbeat.interval_in_ms",
    60000,
    "Interval of the writers' heartbeats. A writer that misses more than"
    " hoodie.client.heartbeat.tolerable.misses counts as dead and is ignored in checks for"
    " conflicts.",
    minimum=1,
)
HEARTBEAT_MISSES: Final = ServiceSetting(
    "hoodie.client.heartbeat.tolerable.misses",
    2,
    "Number of heartbeats that a writer may miss.",
    minimum=1,
)
SERVICE_SETTINGS: Final = declared(globals(), lookup, read_limits)
"""All settings of a service: of this module, of look-ups, and limits on what is read of a table."""
