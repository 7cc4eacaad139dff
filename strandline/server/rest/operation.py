"""``OPERATIONS``: the one table of the routes of ``/v2``, with their parameters and columns; pure.

The server's map, the checks of requests, the OpenAPI document
(``strandline.server.rest.openapi``), docs/reference.md and ``strandline.client`` are made from it.
All are GET. Columns are those of ``strandline.table_api`` where that has the same facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from fsview.wire.param import OWNED_PATHS, V2, WATCH_PATH
from strandline.server.rest.parameter import SHOWN, Parameter, Refusal, bad
from timeline.table.partition_metadata import PATH_CHARACTERS

ROWS: Final = 1_000
"""Rows of a page if the request doesn't say."""
MOST_ROWS: Final = 10_000
MOST_MARKS: Final = 2_000
"""Most marks of a drawing."""
MARKS_BYTES: Final = 256_000
"""Longest answer for a drawing."""
MOST_TERMS: Final = 8
"""Most terms of a filter."""
WATCH_S: Final = 30.0
MOST_WATCH_S: Final = 300.0

JSON_TYPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "logs": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["path", "size", "instant", "version", "modified_at"],
            "properties": {
                "path": {"type": "string"},
                "size": {"type": ["integer", "null"]},
                "instant": {"type": "string"},
                "version": {"type": "integer"},
                "modified_at": {"type": ["string", "null"], "format": "date-time"},
            },
        },
    },
}
"""Type of a column → its JSON schema."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an operation's rows.

    Attributes:
        name: Its name.
        doc: What it says, with units.
        type: A key of ``JSON_TYPES``.
        nullable: Whether it may be null.
        optional: Whether only rows with ``details`` have it.
    """

    name: str
    doc: str
    type: str = "text"
    nullable: bool = False
    optional: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        found: dict[str, Any] = {**JSON_TYPES[self.type], "description": self.doc}
        if self.nullable:
            found["type"] = [found["type"], "null"]
        return found


@dataclass(frozen=True, slots=True)
class Operation:
    """One route of ``/v2``.

    Attributes:
        name: Its name, by which ``strandline.client`` calls it.
        doc: What it answers, for people.
        parameters: All that it knows.
        columns: Of its rows; empty: it has no rows.
        members: Further members of the answer: name → JSON schema.
        marks: Columns of the marks of a summary; empty: it has none.
        of_table: Whether it is about one table.
        is_fixed: Whether a table's state determines the answer, without its storage.
    """

    name: str
    doc: str
    parameters: tuple[Parameter, ...] = ()
    columns: tuple[Column, ...] = ()
    members: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    marks: tuple[Column, ...] = ()
    of_table: bool = True
    is_fixed: bool = False

    @property
    def path(self) -> str:
        """The path of the route."""
        return f"{V2}/{self.name}"

    def column(self, name: str) -> Column | None:
        """Return a column by its name."""
        return next((each for each in self.columns if each.name == name), None)

    def arguments(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return the value of each parameter of a request.

        Raises:
            Refusal: One isn't known, isn't allowed, or is missing.
        """
        known = {each.name: each for each in self.parameters}
        for name, text in given.items():
            if name not in known:
                message = f"{self.path} has no parameter {name[:SHOWN]!r}; allowed: "
                allowed = ", ".join(known) or "none"
                raise Refusal(
                    *(400, "unknown_parameter", message + allowed),
                    parameter=name[:SHOWN],
                    value=text,
                    allowed=allowed,
                )
        found = {}
        for name, parameter in known.items():
            if name in given:
                found[name] = parameter.read(given[name])
            elif parameter.required:
                raise Refusal(
                    *(400, "missing_parameter", f"{self.path} needs the parameter {name!r}"),
                    parameter=name,
                    allowed=parameter.allowed,
                )
            else:
                found[name] = parameter.default
            if parameter.required and found[name] == "":
                raise bad(name, "", parameter.allowed)
        return found


def refused_path(path: str) -> Refusal:
    """Return the refusal of a path below ``/v2`` that is no route."""
    allowed = ", ".join(BY_PATH)
    message = f"{path[:SHOWN]!r} is no route of {V2}; allowed: {allowed}"
    return Refusal(HTTPStatus.NOT_FOUND, "unknown_route", message, value=path, allowed=allowed)


_TABLE: Final = Parameter(
    *("table", "Base path of the table, in any spelling.", "table"),
    required=True,
    longest=PATH_CHARACTERS,
)
_AT: Final = Parameter(
    "at", "Answer as of just after this instant completed; missing: the newest state.", "instant"
)
_PREFIX: Final = Parameter("prefix", "Only rows whose first column begins with this text.")
_FILTER: Final = Parameter(
    "filter",
    f"At most {MOST_TERMS} terms, separated by commas, that must all hold, such as"
    " `bytes>=1000000,partition~2026`: a column, one of `=`, `!=`, `<`, `<=`, `>`, `>=`, `~`"
    " (contains), and a value, in which `%` and `,` are escaped as `%25` and `%2C`.",
)
_LIMIT: Final = Parameter("limit", "Most rows.", "count", ROWS, (1, MOST_ROWS))
_CURSOR: Final = Parameter(
    "cursor", "Where to go on: `next` of the page before, whose other parameters still hold."
)
_ONCE: Final = Parameter(
    "once",
    "Whether only this page is wanted: no cursor is held, `next` is null, and `more` says whether"
    " there are more rows.",
    "flag",
    False,
)
_PAGED: Final = (_PREFIX, _FILTER, _LIMIT, _CURSOR, _ONCE)
_SUMMARY: Final = Parameter(
    "summary", "Whether to answer marks for a drawing; not with `filter`.", "flag", False
)
_MARKS: Final = Parameter("marks", "Most marks of a summary.", "count", MOST_MARKS, (1, MOST_MARKS))
_PARTITION: Final = Parameter("partition", "Path of one partition; missing: all.")

PARTITION_COLUMN: Final = Column("partition", "Path under the base path; empty: unpartitioned.")
_FILE_ID: Final = Column("file_id", "Of the file group.")
_INSTANT_COLUMNS: Final = (
    Column("requested_time", "14 or 17 digits, in the table's time zone."),
    Column("requested_at", "That time; null if the text is none.", "time", nullable=True),
    Column("completion_time", "Null while pending.", nullable=True),
    Column("completed_at", "That time.", "time", nullable=True),
    Column("action", "Such as `commit`."),
    Column("state", "`REQUESTED`, `INFLIGHT` or `COMPLETED`."),
)
_DETAIL_COLUMNS: Final = (
    Column("operation", "Hudi's `WriteOperationType`.", nullable=True, optional=True),
    *(
        Column(name, doc, "count", nullable=True, optional=True)
        for name, doc in (
            ("partitions", "Partitions written, cleaned or rolled back."),
            ("files_written", "Of a commit."),
            ("bytes_written", "Of a commit."),
            ("rows_inserted", "Of a commit."),
            ("rows_updated", "Of a commit."),
            ("rows_deleted", "Of a commit."),
            ("files_deleted", "Of a clean or rollback."),
        )
    ),
)
SUM_COLUMNS: Final = (
    Column("file_groups", "Those with a committed slice that aren't replaced.", "count"),
    Column("base_files", "Of the newest slices.", "count"),
    Column("log_files", "Of the newest slices.", "count"),
    Column("bytes", "Of these base and log files.", "count"),
    Column("slices", "All committed slices of these groups.", "count"),
    Column("files", "All files of these groups.", "count"),
)
_PATH_MARKS: Final = (
    Column("path", "Begins the paths of its partitions; null: all further ones.", nullable=True),
    Column("partitions", "How many.", "count"),
    Column("is_leaf", "Whether it is one partition.", "flag"),
)
_NULLABLE_TEXT: Final = {"type": ["string", "null"]}
_LEAF: Final = Column("visible", "Whether readers see it.", "flag")

OPERATIONS: Final = (
    Operation(
        "tables",
        "The tables that are open, with figures, of all servers of a fleet; most are counted since"
        " the server's start.",
        (
            Parameter(
                "order",
                "Which come first: `name`; `requests`: those with most look-ups; `bytes`: those"
                " that hold most, `packed_bytes` (in memory or in their store) and `retained_bytes`"
                " together.",
                default="name",
                choices=("name", "requests", "bytes"),
            ),
            *_PAGED,
        ),
        (
            Column("table", "Its id as text."),
            Column("server", "URL of the server; null without a fleet.", nullable=True),
            Column("owner", "URL of the table's owner; null without one.", nullable=True),
            Column("is_owner", "Whether this server is the owner.", "flag"),
            Column("group", "Group of servers that has it.", nullable=True),
            Column("instant", "Last instant of its timeline.", nullable=True),
            Column("state", "Changes whenever its timeline does.", nullable=True),
            Column("loaded", "Whether all of its partitions are known.", "flag"),
            Column("partitions_loaded", "Partitions held.", "count"),
            Column("packed_bytes", "Bytes of these, packed.", "count"),
            Column("snapshots", "Snapshots held.", "count"),
            Column("retained_bytes", "Bytes held for older snapshots alone.", "count"),
            Column("requests", "Look-ups.", "count"),
            Column("requests_ready", "Those answered from ready bytes.", "count"),
            Column("syncs", "Reads of its timeline.", "count"),
            Column("reloads", "How often it was loaded anew.", "count"),
            Column("storage_calls", "Requests to its storage.", "count"),
            Column(
                "storage_calls_saved",
                "Look-ups, each of which would have listed a partition, less lists made.",
                "count",
            ),
            Column("storage_longest_s", "Of the call under way, seconds.", "number"),
        ),
        {
            "tables_open": {"type": "integer"},
            "servers": {"type": "integer"},
            "unreachable": {"type": "array", "items": {"type": "string"}},
        },
        of_table=False,
    ),
    Operation(
        "timeline",
        "The instants of a table by requested time.",
        (
            _TABLE,
            _AT,
            Parameter("archived", "Whether to add those in the archive.", "flag", False),
            Parameter("order", "Which come first.", default="oldest", choices=("oldest", "newest")),
            Parameter("action", "Only those of this action."),
            Parameter(
                "state",
                "Only those in this state.",
                choices=("REQUESTED", "INFLIGHT", "COMPLETED"),
            ),
            Parameter("details", "Whether to read what each recorded about itself.", "flag", False),
            *_PAGED,
            _SUMMARY,
            _MARKS,
        ),
        (
            *_INSTANT_COLUMNS,
            Column("archived", "Whether it has left the active timeline.", "flag"),
            *_DETAIL_COLUMNS,
        ),
        marks=(
            Column("begin", "First requested time of the mark."),
            Column("end", "Last requested time of the mark."),
            Column("action", "Of its instants."),
            Column("state", "Of its instants."),
            Column("archived", "Whether they have left the active timeline.", "flag"),
            Column("instants", "How many.", "count"),
        ),
    ),
    Operation(
        "partitions",
        "The partitions of a table by path, with sums over their files.",
        (_TABLE, _AT, *_PAGED, _SUMMARY, _MARKS),
        (PARTITION_COLUMN, *SUM_COLUMNS),
        marks=(*_PATH_MARKS, *SUM_COLUMNS),
        is_fixed=True,
    ),
    Operation(
        "slices",
        "The file slices of a table: the newest of each group, or all of them.",
        (
            _TABLE,
            _AT,
            _PARTITION,
            Parameter("all", "Whether to answer all, uncommitted ones included.", "flag", False),
            *_PAGED,
        ),
        (
            PARTITION_COLUMN,
            _FILE_ID,
            Column("base_instant", "Requested time at which it begins."),
            Column("base_at", "That time.", "time", nullable=True),
            Column("path", "Of the base file, under the base path.", nullable=True),
            Column("size", "Bytes of the base file.", "count", nullable=True),
            Column("log_paths", "Of the logs, oldest first.", "texts"),
            Column("logs", "How many.", "count"),
            Column("bytes", "Of all its files.", "count"),
        ),
        is_fixed=True,
    ),
    Operation(
        "files",
        "The data files of a table's file groups that aren't replaced.",
        (_TABLE, _AT, _PARTITION, *_PAGED),
        (
            PARTITION_COLUMN,
            _FILE_ID,
            Column("base_instant", "Of its slice."),
            Column("kind", "`base` or `log`."),
            Column("path", "Under the base path."),
            Column("size", "Bytes; null: not known.", "count", nullable=True),
            Column("modified_at", "Null: not known.", "time", nullable=True),
            Column("instant", "In its name."),
            Column("log_version", "Number of the log among those of its instant.", "count", True),
            Column("newest", "Whether it is in the group's newest committed slice.", "flag"),
        ),
        is_fixed=True,
    ),
    Operation(
        "group",
        "The life of one file group: its slices, oldest first.",
        (
            _TABLE,
            Parameter("partition", "Path of its partition.", default=""),
            Parameter("file_id", "Its id.", required=True),
            _AT,
        ),
        (
            Column("base_instant", "Requested time at which the slice begins."),
            Column("base_at", "That time.", "time", nullable=True),
            _LEAF,
            Column("newest", "Whether it is the newest that readers see.", "flag"),
            Column("path", "Of the base file, under the base path.", nullable=True),
            Column("size", "Bytes of the base file.", "count", nullable=True),
            Column("modified_at", "Of the base file.", "time", nullable=True),
            Column("bytes", "Of all its files.", "count"),
            Column("logs", "Its logs, oldest first.", "logs"),
        ),
        {
            "partition": {"type": "string"},
            "file_id": {"type": "string"},
            "replaced_by": _NULLABLE_TEXT,
            "pending": {
                "type": ["object", "null"],
                "required": ["action", "requested_time"],
                "properties": {
                    "action": {"type": "string"},
                    "requested_time": {"type": "string"},
                },
            },
        },
        is_fixed=True,
    ),
    Operation(
        "pending",
        "The instants that aren't completed: who holds the timeline up.",
        (_TABLE, *_PAGED),
        (
            *(_INSTANT_COLUMNS[i] for i in (0, 1, 4, 5)),
            Column("file_groups", "Of a plan.", "count", nullable=True),
            Column("heartbeat_at", "The writer's last sign of life.", "time", nullable=True),
        ),
    ),
    Operation(
        "leases",
        "The leases of readers, which keep files from being cleaned.",
        (_TABLE, *_PAGED),
        (
            Column("id", "By which it can be revoked."),
            Column("instant", "Newest write that its reader reads.", nullable=True),
            Column("earliest", "From which write on it holds all; null: all.", nullable=True),
            Column("holder", "The process that reads.", nullable=True),
            Column("renewed_at", "By the storage's clock.", "time", nullable=True),
            Column("expires_at", "Null: never.", "time", nullable=True),
            Column("problem", "Why its file can't be read.", nullable=True),
        ),
    ),
    Operation(
        "clean",
        "What a clean would delete now; nothing is changed, and no partition that is held is"
        " listed.",
        (
            _TABLE,
            Parameter(
                "policy",
                "Retention policy.",
                default="KEEP_LATEST_COMMITS",
                choices=(
                    "KEEP_LATEST_COMMITS",
                    "KEEP_LATEST_BY_HOURS",
                    "KEEP_LATEST_FILE_VERSIONS",
                ),
            ),
            Parameter(
                "retain",
                "Number of commits, hours or file versions; missing: Hudi's default.",
                "count",
                bounds=(1, 1_000_000),
            ),
            *_PAGED,
            _SUMMARY,
            _MARKS,
        ),
        (
            PARTITION_COLUMN,
            Column("file", "Its name."),
            Column("bytes", "Null: not known.", "count", nullable=True),
            Column("reason", "The rule by which it goes."),
        ),
        {"policy": {"type": "string"}, "earliest": {"type": "string"}},
        marks=(
            *_PATH_MARKS,
            Column("files", "How many.", "count"),
            Column("bytes", "Of these.", "count"),
        ),
    ),
    Operation(
        "status",
        "The figures of all servers, by the names that `/metrics` has.",
        (
            Parameter(
                "names", "Only metrics whose name begins with one of these, separated by commas."
            ),
            Parameter(
                *("table", "Only samples of this table, and those of none.", "table"),
                longest=PATH_CHARACTERS,
            ),
        ),
        members={
            "servers": {"type": "array", "items": {"$ref": "#/components/schemas/Server"}},
            "fleet": {"type": ["object", "null"]},
        },
        of_table=False,
    ),
    Operation(
        "watch",
        "The state of a table as soon as it differs from `after`, or once the time is over.",
        (
            _TABLE,
            Parameter(
                "after",
                "`state` of an answer, or a timeline hash; missing: answered at once.",
                longest=200,
            ),
            Parameter(
                "timeout", "How long to wait, seconds.", "seconds", WATCH_S, (0, MOST_WATCH_S)
            ),
        ),
        members={"hash": _NULLABLE_TEXT, "changed": {"type": "boolean"}},
    ),
)
"""All operations, in the order of the reference."""

OPENAPI: Final = f"{V2}/openapi.json"
BY_NAME: Final = {each.name: each for each in OPERATIONS}
BY_PATH: Final = {**{each.path: each for each in OPERATIONS}, OPENAPI: None}
assert {each.path for each in OPERATIONS if each.of_table} == {*OWNED_PATHS, WATCH_PATH}
