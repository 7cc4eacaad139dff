"""``ServedTable``: what ``/v2`` answers about a table that a service follows.

The facts and columns are those of ``Table`` and ``Inspect``, but files come from the service's
view, so partitions that it holds aren't listed. The service loads this module when ``/v2`` is first
asked about a table (0.1 s). It imports nothing that scans rows, as that takes pandas, half a second
and 45 MB.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import pyarrow as pa

from fsview.files.partition import PartitionVersion
from fsview.files.row import UNKNOWN_SIZE, DataFile
from fsview.local_view import InspectedView
from fsview.model.file_group import BaseFile, FileSlice
from fsview.query.queries import (
    RawGroup,
    all_file_groups,
    latest_file_slices_before_or_on,
    raw_group,
)
from fsview.query.sums import NEWEST, PartitionSums, slice_bytes
from fsview.snapshot.snapshot import Snapshot
from strandline.read.state.reader_lease import Leases
from strandline.records.schema.columns import COUNT, FLAG, TEXT, TEXTS, schema_of
from strandline.server.rest.listing import BlocksOf, Listing, Row, blocks, one_block
from strandline.server.rest.operation import Column
from strandline.server.rest.parameter import Refusal
from strandline.table_api.history import TableHistory
from strandline.table_api.inspect import pending_rows
from strandline.table_api.metadata_rows import (
    TIME,
    file_row,
    history_row,
    instant_row,
    pin_row,
    utc_time,
    utc_time_of,
)
from strandline.table_services.clean.planner import CleanPlanner
from strandline.table_services.clean.policy import clean_settings
from strandline.table_services.clean.preview import preview
from timeline.archive.archived_timeline import HELD_BYTES, ArchivedTimeline
from timeline.clock import SystemClock, TimeGenerator
from timeline.errors import ViewBehindError
from timeline.instant import Instant
from timeline.meta_client import TableMetaClient

CAUSE: Final = "inspect"
"""Under which storage calls are counted."""
_LOG: Final = schema_of(path=TEXT, size=COUNT, instant=TEXT, version=COUNT, modified_at=TIME)
TYPES: Final[Mapping[str, pa.DataType]] = {
    "text": TEXT,
    "count": COUNT,
    "number": pa.float64(),
    "flag": FLAG,
    "time": TIME,
    "texts": TEXTS,
    "logs": pa.list_(pa.struct(list(_LOG))),
}
"""Type of a column → Arrow's."""


class ServedTable:
    """One table at one snapshot.

    Args:
        name: The table's id as text, below its root as that was given.
        view: The view, which this object's listings hold.
        sums: Returns the packed sums of a partition's files.
    """

    def __init__(self, name: str, view: InspectedView, sums: Callable[[str], bytes]) -> None:
        self._view = view
        self._sums = sums
        self._zone = view.snapshot.config.timezone
        last = view.snapshot.timeline.last
        self.head = {
            "table": name,
            "instant": None if last is None else last.requested_time,
            "state": view.snapshot.mark,
        }

    # Listings.

    def listing(self, name: str, arguments: Mapping[str, Any]) -> Listing:
        """Return the rows of an operation, before prefix and filter.

        Args:
            name: Of the operation.
            arguments: Of the request.
        """
        made: Listing = getattr(self, f"_{name}")(arguments)
        return made

    def _partitions(self, arguments: Mapping[str, Any]) -> Listing:
        def rows(block: Sequence[str]) -> Iterator[Row]:
            for partition in block:
                sums = asdict(PartitionSums.of_packed(self._sums(partition)))
                yield {**sums, "partition": partition}

        found = self._paths(arguments)
        return self._of_units([*blocks(found)], rows, size=100 * len(found))

    def _paths(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the paths of the partitions that a request is about, in order."""
        partition = arguments.get("partition")
        if partition is not None:
            return [partition.strip("/")]
        prefix = arguments.get("prefix") or ""
        return [path for path in self._view.partitions() if path.startswith(prefix)]

    def _of_units(
        self,
        units: Sequence[Any],
        rows: Callable[[Any], Iterable[Row]],
        *,
        size: int = 0,
        **more: Any,
    ) -> Listing:
        return self._in_blocks(units, one_block(rows), size=size, **more)

    def _in_blocks(
        self, units: Sequence[Any], rows: BlocksOf, *, size: int = 0, **more: Any
    ) -> Listing:
        return Listing({**self.head, **more}, units, rows, size, held=self._view)

    def _slices(self, arguments: Mapping[str, Any]) -> Listing:
        query = _all_slices if arguments["all"] else _newest_slices

        def row(found: FileSlice) -> Row:
            base = found.base_file
            size = None if base is None else _known_size(base)
            more = {"size": size, "logs": len(found.log_files), "bytes": slice_bytes(found)}
            return {**file_row(found, self._zone), **more}

        def rows(partition: str, begin: int) -> Iterator[Iterable[Row]]:
            return (map(row, found) for found in self._view.in_blocks(query, partition, begin))

        return self._in_blocks(self._paths(arguments), rows)

    def _files(self, arguments: Mapping[str, Any]) -> Listing:
        def rows(partition: str, begin: int) -> Iterator[Iterable[Row]]:
            return self._view.in_blocks(_file_rows, partition, begin)

        return self._in_blocks(self._paths(arguments), rows)

    def _group(self, arguments: Mapping[str, Any]) -> Listing:
        partition, file_id = arguments["partition"].strip("/"), arguments["file_id"]
        group = self._view.inspect(raw_group, partition, file_id=file_id)
        if group is None:
            message = f"no file group {file_id[:100]!r} in the partition {partition[:200]!r}"
            allowed = "file_id and partition of a row of /v2/slices"
            raise Refusal(
                *(404, "group_not_found", message),
                parameter="file_id",
                value=file_id,
                allowed=allowed,
            )
        newest = next(
            (
                s.base_instant
                for s in group.slices
                if self._view.snapshot.is_visible(s.base_instant)
            ),
            None,
        )
        return self._of_units(
            [group],
            lambda of: [self._life(each, newest) for each in reversed(of.slices)],
            partition=partition,
            file_id=file_id,
            replaced_by=group.replaced_at,
            pending=self._pending_on(group),
        )

    def _pending_on(self, group: RawGroup) -> dict[str, str] | None:
        """Return the plan that pends on a group."""
        snapshot, key = self._view.snapshot, (group.partition, group.file_id)
        if group.compaction is not None:
            return {"action": "compaction", "requested_time": group.compaction}
        if (log := snapshot.pending_log_compaction.get(key)) is not None:
            return {"action": "logcompaction", "requested_time": log.compaction_instant}
        if (instant := snapshot.pending_clustering.get(key)) is not None:
            return {"action": "clustering", "requested_time": instant.requested_time}
        return None

    def _life(self, found: FileSlice, newest: str | None) -> dict[str, Any]:
        base = found.base_file
        return {
            "base_instant": found.base_instant,
            "base_at": utc_time(found.base_instant, self._zone),
            "visible": self._view.snapshot.is_visible(found.base_instant),
            "newest": found.base_instant == newest,
            "path": None if base is None else base.path,
            "size": None if base is None else _known_size(base),
            "modified_at": None if base is None else _modified(base),
            "bytes": slice_bytes(found),
            "logs": [
                {
                    "path": log.path,
                    "size": _known_size(log),
                    "instant": log.instant,
                    "version": log.version,
                    "modified_at": _modified(log),
                }
                for log in reversed(found.log_files)
            ],
        }

    def _timeline(self, arguments: Mapping[str, Any]) -> Listing:
        archive = self._meta().archived_timeline() if arguments["archived"] else None
        found = self._instants(arguments, archive)
        if arguments["order"] == "newest":
            found.reverse()
        size = 200 * sum(old for _, old in found) + 50 * len(found)
        if arguments["details"]:
            # The archive is kept with the cursor.
            size += 0 if archive is None else HELD_BYTES
            rows = self._details(archive)
            return self._of_units([*blocks(found, 100)], rows, size=size)

        def plain(block: Sequence[tuple[Instant, bool]]) -> Iterable[Row]:
            return ({**instant_row(i, self._zone), "archived": old} for i, old in block)

        return self._of_units([*blocks(found)], plain, size=size)

    def _instants(
        self, arguments: Mapping[str, Any], archive: ArchivedTimeline | None
    ) -> list[tuple[Instant, bool]]:
        """Return the instants that a request is about, and whether each is archived."""
        active = self._view.snapshot.active
        found = [(instant, False) for instant in active]
        if archive is not None:
            # The snapshot is older: what was archived since is in both, and counts as active.
            last = active.newest_completion
            old = (i for i in archive.timeline if not active.contains(i))
            then = ((i, True) for i in old if (i.completion_time or i.requested_time) <= last)
            found = sorted((*then, *found), key=lambda each: each[0].sort_key)
        action, state = arguments["action"], arguments["state"]
        return [
            (instant, old)
            for instant, old in found
            if action in (None, instant.action) and state in (None, instant.state.value)
        ]

    def _details(
        self, archive: ArchivedTimeline | None
    ) -> Callable[[Sequence[tuple[Instant, bool]]], Iterator[Row]]:
        """Return what makes the rows of instants with what each recorded about itself."""
        history = TableHistory(self._meta())
        # A cursor may be used by several threads at once, which an archive doesn't allow.
        turn = threading.Lock()

        def rows(block: Sequence[tuple[Instant, bool]]) -> Iterator[Row]:
            for instant, old in block:
                with turn:
                    entry = history.entry(instant, archive if old else None)
                # One that is gone was rolled back meanwhile.
                more = {} if entry is None else history_row(entry, self._zone)
                yield {**instant_row(instant, self._zone), **more, "archived": old}

        return rows

    def _pending(self, _: Mapping[str, Any]) -> Listing:
        storage = self._view.table.storage.for_cause(CAUSE)
        rows = pending_rows(self._view.snapshot, storage, self._zone)
        return self._of_units([rows], lambda found: found, size=500 * len(rows))

    def _leases(self, _: Mapping[str, Any]) -> Listing:
        leases = Leases(self._view.table.storage.for_cause("lease"), SystemClock()).all()
        rows = [*map(pin_row, leases)]
        return self._of_units([rows], lambda found: found, size=500 * len(rows))

    def _clean(self, arguments: Mapping[str, Any]) -> Listing:
        found = self._preview(arguments)
        batches = found.files.to_batches(max_chunksize=1_000)
        return self._of_units(
            batches,
            lambda batch: batch.to_pylist(),
            size=found.files.nbytes,
            policy=found.policy,
            earliest=found.earliest,
        )

    def _preview(self, arguments: Mapping[str, Any]) -> Any:
        settings = clean_settings(arguments["policy"], arguments["retain"])
        times = TimeGenerator(SystemClock(), self._zone)
        # Its own view, as a planner syncs it if it lags.
        view = InspectedView(self._view.table, self._view.snapshot)
        planner = CleanPlanner(self._meta(), view, times, settings)
        try:
            return preview(planner, self._view.snapshot.active)
        except ViewBehindError as error:
            # A rollback or another clean isn't finished; the state that is asked is the newest.
            raise Refusal(
                *(503, "removal_pending", error.message),
                allowed=error.hint,
                retry_after_s=_REMOVAL_S,
            ) from error

    def _meta(self) -> TableMetaClient:
        return TableMetaClient.open(self._view.table.storage, cause=CAUSE)

    # Summaries.

    def summary(self, name: str, arguments: Mapping[str, Any]) -> Callable[[int], dict[str, Any]]:
        """Return what makes the answer of an operation as at most so many marks for a drawing.

        Args:
            name: Of the operation.
            arguments: Of the request.
        """
        prefix = arguments["prefix"] or ""
        if name == "timeline":
            archive = self._meta().archived_timeline() if arguments["archived"] else None
            every = self._instants(arguments, archive)
            found = [each for each in every if each[0].requested_time.startswith(prefix)]
            total = {"instants": len(found)}
            return lambda many: {
                **self.head,
                "marks": _marks_of_instants(found, many),
                "total": total,
            }
        head: dict[str, Any] = {**self.head, "prefix": prefix}
        if name == "partitions":
            packed = {path: self._sums(path) for path in self._paths(arguments)}
            head["total"] = asdict(PartitionSums.total(packed.values()))
            return partial(_with_marks, head, packed, prefix, names=_SUM_NAMES, total=_sums_of)
        planned = self._preview(arguments)
        files: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        reasons: Counter[str] = Counter()
        columns = (
            planned.files.column(name).to_pylist() for name in ("partition", "bytes", "reason")
        )
        for path, size, reason in zip(*columns, strict=True):
            if path.startswith(prefix):
                files[path][0] += 1
                files[path][1] += size or 0
                reasons[reason] += 1
        names = ("partitions", "files", "bytes")
        head |= {
            "policy": planned.policy,
            "earliest": planned.earliest,
            "total": dict(zip(names, _counts(files.values()), strict=True)),
            "reasons": dict(reasons.most_common(_REASONS)),
        }
        return partial(_with_marks, head, files, prefix, names=names, total=_counts)


def _with_marks(
    head: Mapping[str, Any], values: Mapping[str, Any], prefix: str, many: int, **how: Any
) -> dict[str, Any]:
    depth, marks = marks_by_path(values, prefix, many, **how)
    return {**head, "depth": depth, "marks": marks}


_REASONS: Final = 20
"""Most reasons of a summary."""
_REMOVAL_S: Final = 10
"""When to ask again for what a clean would delete, while files are being removed."""
_SUM_NAMES: Final = (
    *("partitions", "file_groups", "base_files", "log_files", "bytes", "slices", "files"),
)


def _sums_of(parts: Iterable[bytes]) -> tuple[int, ...]:
    found = PartitionSums.total(parts)
    return tuple(getattr(found, name) for name in _SUM_NAMES)


def _counts(parts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    each = [*parts]
    return len(each), sum(files for files, _ in each), sum(size for _, size in each)


def marks_by_path(
    values: Mapping[str, Any],
    prefix: str,
    most: int,
    names: Sequence[str],
    total: Callable[[Iterable[Any]], Sequence[int]],
) -> tuple[int, dict[str, list[Any]]]:
    """Return the sums of partitions by the begin of their paths, as columns.

    They are as deep as ``most`` marks allow, and at least one folder deeper than the prefix; marks
    beyond ``most``, those with the fewest bytes, are one mark whose path is null.

    Args:
        values: Path → what is summed.
        prefix: Of all paths.
        most: Most marks.
        names: Of the columns of sums; ``bytes`` is one, the first is ``partitions``.
        total: Returns the sums of some values, in the order of ``names``.

    Returns:
        Number of folders of the marks' paths, and name → column, most bytes first.
    """
    parts = {path: path.split("/") for path in values}
    least = prefix.count("/") + 1
    deepest = max(map(len, parts.values()), default=least)
    depth = least
    while depth < deepest and len({tuple(p[: depth + 1]) for p in parts.values()}) <= most:
        depth += 1
    groups: dict[str, list[str]] = defaultdict(list)
    for path, folders in parts.items():
        groups["/".join(folders[:depth])].append(path)
    size = names.index("bytes")
    found = [(path, total(values[each] for each in paths)) for path, paths in groups.items()]
    found.sort(key=lambda mark: (-mark[1][size], mark[0]))
    shown, rest = (found, []) if len(found) <= most else (found[: most - 1], found[most - 1 :])
    rows: list[tuple[str | None, bool, Sequence[int]]] = [
        (path, groups[path] == [path], sums) for path, sums in shown
    ]
    if rest:
        rows.append(
            (None, False, [sum(column) for column in zip(*(s for _, s in rest), strict=True)])
        )
    marks: dict[str, list[Any]] = {
        "path": [path for path, _, _ in rows],
        "is_leaf": [is_leaf for _, is_leaf, _ in rows],
    }
    for at, name in enumerate(names):
        marks[name] = [sums[at] for _, _, sums in rows]
    return depth, marks


def _marks_of_instants(found: Sequence[tuple[Instant, bool]], most: int) -> dict[str, list[Any]]:
    """Return runs of instants of one action and state as columns, each kind in its order."""
    kinds: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for instant, old in found:
        kinds[instant.action, instant.state.value, old].append(instant.requested_time)
    marks: dict[str, list[Any]] = {
        name: [] for name in ("begin", "end", "action", "state", "archived", "instants")
    }
    # Each kind has one run that isn't full.
    many = 1 if len(found) <= most else -(-len(found) // max(1, most - len(kinds)))
    for (action, state, old), times in list(kinds.items())[:most]:
        for run in blocks(times, many):
            row = (min(run), max(run), action, state, old, len(run))
            for column, value in zip(marks.values(), row, strict=True):
                column.append(value)
    return marks


def arrow_stream(columns: Sequence[Column], rows: Sequence[Row], head: Mapping[str, str]) -> bytes:
    """Return rows as a stream of Arrow IPC.

    Args:
        columns: Of the rows.
        rows: The rows; a name that one lacks is null.
        head: Metadata of the schema, by key.
    """
    try:
        return _stream(columns, rows, head)
    except UnicodeEncodeError:
        # Names of files need not be UTF-8, as Arrow's text is.
        return _stream(columns, *map(_as_utf8, (rows, head)))


def _as_utf8(value: Any) -> Any:
    """Return a value whose texts have ``?`` for what isn't UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        return [*map(_as_utf8, value)]
    if isinstance(value, Mapping):
        return {name: _as_utf8(each) for name, each in value.items()}
    return value


def _stream(columns: Sequence[Column], rows: Sequence[Row], head: Mapping[str, str]) -> bytes:
    fields = [pa.field(c.name, TYPES[c.type], nullable=True) for c in columns]
    schema = pa.schema(fields, metadata={f"strandline.{key}": text for key, text in head.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema))
    return bytes(sink.getvalue())


def _newest_slices(s: Snapshot, v: PartitionVersion) -> Iterable[FileSlice]:
    return latest_file_slices_before_or_on(s, v, NEWEST, include_pending_compaction=True)


def _all_slices(s: Snapshot, v: PartitionVersion) -> Iterable[FileSlice]:
    return [found for group in all_file_groups(s, v) for found in group.slices]


def _file_rows(s: Snapshot, v: PartitionVersion) -> list[Row]:
    newest = {each.file_id: each.base_instant for each in _newest_slices(s, v)}
    return [
        {**_file(file, found), "newest": newest.get(found.file_id) == found.base_instant}
        for found in _all_slices(s, v)
        for file in _files_of(found)
    ]


def _files_of(found: FileSlice) -> Iterator[DataFile]:
    if found.base_file is not None:
        yield found.base_file
    yield from reversed(found.log_files)


def _file(file: DataFile, found: FileSlice) -> dict[str, Any]:
    is_base = isinstance(file, BaseFile)
    return {
        "partition": found.partition,
        "file_id": found.file_id,
        "base_instant": found.base_instant,
        "kind": "base" if is_base else "log",
        "path": file.path,
        "size": _known_size(file),
        "modified_at": _modified(file),
        "instant": file.instant,
        "log_version": None if isinstance(file, BaseFile) else file.version,
    }


def _known_size(file: DataFile) -> int | None:
    return None if file.size == UNKNOWN_SIZE else file.size


def _modified(file: DataFile) -> Any:
    """Return when a file was modified; metadata that has no such time says 0."""
    return utc_time_of(file.mtime_ms) if file.mtime_ms > 0 else None
