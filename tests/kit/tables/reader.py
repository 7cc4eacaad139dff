"""A naive reader of tables: names and timeline only, none of the packages under test.

It returns what Hudi's readers read: of each file group that no replacecommit has replaced the base
file of the newest committed instant, in directories that have a ``.hoodie_partition_metadata``
file. An instant is committed if its completed file exists, or if it is older than every commit of
the active timeline.

The logs of committed instants since that base file (one writer at a time) are applied to its rows
one after the other, by event time by the ordering column ``ts``. In table version 6 these are the
logs with its instant, or a later one, in their names, and of their blocks those of committed
instants that no later block rolls back. A record that comes after a delete without an ordering
value wins here, while Hudi compares it with the base file's row.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import struct
from collections.abc import Collection
from functools import lru_cache
from itertools import chain, starmap, zip_longest
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

META = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
_BASE_FILE = re.compile(r"([0-9a-f-]{36}-\d+)_(\d+-\d+-\d+)_(\d{17})\.parquet")
_LOG = re.compile(r"\.([0-9a-f-]{36}-\d+)_(\d{17})\.log\.(\d+)_(\d+-\d+-\d+)")
_OWN = re.compile(
    rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|\d{17}|\d+-\d+-\d+(?=_)"
    rb"|(?<=\.log\.\d_)\d+-\d+-\d+"
)
"""What each run of a write makes anew: file ids, tokens of heartbeats, instants, write tokens."""
_DURATIONS = frozenset(
    {
        "timeTakenInMillis",
        "totalCreateTime",
        "totalScanTime",
        "totalTimeTakenInMillis",
        "totalUpsertTime",
    }
)
"""Fields of metadata that say how long something took."""
_COMPLETED = re.compile(r"(\d{17})(?:_(\d{17}))?\.(commit|deltacommit|replacecommit)")


def exists(base) -> bool:
    return (Path(base) / ".hoodie" / "hoodie.properties").is_file()


def timeline_folder(base) -> Path:
    folder = Path(base) / ".hoodie"
    inner = folder / "timeline"
    return inner if inner.is_dir() else folder


def timeline_names(base) -> list[str]:
    entries = timeline_folder(base).iterdir()
    return sorted(entry.name for entry in entries if entry.name[:17].isdigit())


def committed(base) -> set[str]:
    found = (_COMPLETED.fullmatch(name) for name in timeline_names(base))
    return {match[1] for match in found if match}


def replaced(base) -> set[tuple[str, str]]:
    """Return the (partition, file id) that completed replacecommits replace."""
    groups: set[tuple[str, str]] = set()
    for name in timeline_names(base):
        match = _COMPLETED.fullmatch(name)
        if match and match[3] == "replacecommit":
            data = (timeline_folder(base) / name).read_bytes()
            is_avro = data.startswith(b"Obj")
            record = next(fastavro.reader(io.BytesIO(data))) if is_avro else json.loads(data)
            for partition, file_ids in (record["partitionToReplaceFileIds"] or {}).items():
                groups |= {(partition, file_id) for file_id in file_ids}
    return groups


def pending(base) -> set[str]:
    """Return the names of the timeline files of instants without a completed file."""
    names = timeline_names(base)
    done = {name[:17] for name in names if not name.endswith((".requested", ".inflight"))}
    return {name for name in names if name[:17] not in done}


def base_files(base):
    """Yield (partition, name, file id, instant) of every base file, whatever its directory."""
    base = Path(base)
    for folder, folders, names in os.walk(base):
        if ".hoodie" in folders:
            folders.remove(".hoodie")
        partition = Path(folder).relative_to(base).as_posix()
        for name in names:
            match = _BASE_FILE.fullmatch(name)
            if match:
                yield "" if partition == "." else partition, name, match[1], match[3]


def logs(base):
    """Yield (partition, name, file id, instant, version) of every log, whatever its directory."""
    base = Path(base)
    for path in base.rglob(".*.log.*"):
        partition = path.parent.relative_to(base).as_posix()
        match = _LOG.fullmatch(path.name)
        if match and not partition.startswith(".hoodie"):
            version = int(match[3])
            yield "" if partition == "." else partition, path.name, match[1], match[2], version


def newest_files(base) -> dict[tuple[str, str], str]:
    """Return (partition, file id) → name of the base file that readers take."""
    done = committed(base)
    first = min(done, default="")
    newest: dict[tuple[str, str], tuple[str, str]] = {}
    for partition, name, file_id, instant in base_files(base):
        if not (Path(base) / partition / ".hoodie_partition_metadata").is_file():
            continue
        if instant not in done and not instant < first:
            continue
        known = newest.get((partition, file_id))
        assert known is None or known[0] != instant, f"two files of one slice: {known[1]}, {name}"
        if known is None or instant > known[0]:
            newest[partition, file_id] = (instant, name)
    gone = replaced(base)
    return {group: name for group, (_, name) in newest.items() if group not in gone}


def rows(base, *, unique: bool = True) -> list[dict] | None:
    """Return the table's rows without meta columns, by record key; ``None`` without a table.

    ``unique``: whether a key may come once only, as it does unless stored keys are inserted.
    """
    if not exists(base):
        return None
    found = []
    done, all_logs = committed(base), sorted(logs(base), key=lambda log: log[3:])
    first, by_time, by_slice = min(done, default=""), _is_by_time(base), _is_version_6(base)
    for (partition, file_id), name in newest_files(base).items():
        since = _BASE_FILE.fullmatch(name)[3]
        stored = stored_rows(Path(base) / partition / name)
        assert all(row["_hoodie_file_name"] == name for row in stored)
        newer = [
            Path(base) / partition / log
            for of_partition, log, of_group, instant, _ in all_logs
            if (of_partition, of_group) == (partition, file_id)
            if (since <= instant if by_slice else since < instant)
            if by_slice or instant in done or instant < first
        ]
        if newer:
            counts = (lambda time: time in done or time < first) if by_slice else None
            stored = _with_logs(stored, newer, file_id, counts, by_time=by_time)
        for row in stored:
            assert row["_hoodie_partition_path"] == partition
            found.append((row["_hoodie_record_key"], partition, row))
    keys = [found_row[:2] for found_row in found]
    assert not unique or len(keys) == len(set(keys)), "a key comes twice"
    found.sort(key=lambda each: each[:2])
    return [{k: v for k, v in row.items() if k not in META} for _, _, row in found]


def stored_rows(path: Path) -> list[dict]:
    """Return the rows of a base file, which callers don't change."""
    return _stored_rows(path.read_bytes())


@lru_cache(maxsize=500)
def _stored_rows(base_file: bytes) -> list[dict]:
    return pq.ParquetFile(pa.BufferReader(base_file)).read(use_threads=False).to_pylist()


def _is_by_time(base) -> bool:
    """Whether ordering values decide which row wins."""
    latest = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
    later_wins = {
        "hoodie.record.merge.mode=COMMIT_TIME_ORDERING",
        f"hoodie.compaction.payload.class={latest}",
    }
    return later_wins.isdisjoint(_properties(base))


def _is_version_6(base) -> bool:
    return "hoodie.table.version=6" in _properties(base)


def _properties(base) -> list[str]:
    return (Path(base) / ".hoodie" / "hoodie.properties").read_text().splitlines()


def _with_logs(stored: list[dict], paths: list[Path], file_id: str, counts, *, by_time: bool):
    """Return rows after the records of logs, in order.

    ``counts``: whether an instant's blocks count; ``None``: all are of the log's own instant.
    """
    by_key = {row["_hoodie_record_key"]: row for row in stored}
    if counts is None:
        blocks = [block for path in paths for block in _log_blocks(path)]
        names = {
            (_LOG.fullmatch(path.name)[2], h[0]) for path in paths for _, h, _ in _log_blocks(path)
        }
        assert all(name == time for name, time in names)
    else:
        blocks = list[tuple[int, dict, bytes]]()
        for kind, header, content in chain.from_iterable(map(_log_blocks, paths)):
            if kind == 0:
                blocks = [each for each in blocks if each[1][0] != header[1]]
            elif counts(header[0]):
                blocks.append((kind, header, content))
    for key, row, ordering in chain.from_iterable(starmap(_block_records, blocks)):
        held = by_key.get(key)
        is_ordered = by_time and held is not None and ordering is not None
        if is_ordered and ordering < held["ts"]:
            continue
        by_key.pop(key, None)
        if row is not None:
            assert row["_hoodie_file_name"] == file_id
            by_key[key] = row
    return list(by_key.values())


def _log_blocks(path: Path):
    """Yield kind, header and content of a log's blocks; of a torn one, nothing."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        if len(data) < at + 26 or len(data) < at + 14 + struct.unpack_from(">q", data, at + 6)[0]:
            return
        assert data[at : at + 6] == b"#HUDI#"
        size, version, kind, count = struct.unpack_from(">qiii", data, at + 6)
        end, at, header = at + 14 + size, at + 26, {}
        assert (version, struct.unpack_from(">q", data, end - 8)) == (1, (size + 6,))
        for _ in range(count):
            ordinal, length = struct.unpack_from(">ii", data, at)
            header[ordinal] = data[at + 8 : at + 8 + length].decode()
            at += 8 + length
        (length,) = struct.unpack_from(">q", data, at)
        content, at = data[at + 8 : at + 8 + length], end
        yield kind, header, content


def _block_records(kind: int, header: dict, content: bytes):
    """Yield key, row (``None`` of a delete) and ordering value of a block's records."""
    if kind == 5:
        rows = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False).to_pylist()
        yield from ((row["_hoodie_record_key"], row, row["ts"]) for row in rows)
    elif kind == 3:
        stream, schema = io.BytesIO(content), fastavro.parse_schema(json.loads(header[2]))
        for _ in range(struct.unpack(">ii", stream.read(8))[1]):
            stream.read(4)
            row = fastavro.schemaless_reader(stream, schema)
            yield row["_hoodie_record_key"], row, row["ts"]
    else:
        assert kind == 1
        stream = io.BytesIO(content[8:])
        found = fastavro.schemaless_reader(stream, _DELETES, return_record_name=True)
        for each in found["deleteRecordList"]:
            wrapper, held = each["orderingVal"] or (_INTEGER, {"value": 0})
            # Hudi's delete operation writes Java's Integer 0.
            is_hard = wrapper == _INTEGER and held["value"] == 0
            yield each["recordKey"], None, None if is_hard else held["value"]


_INTEGER = "org.apache.hudi.avro.model.IntWrapper"
_DELETES = fastavro.parse_schema(
    json.loads(
        (Path(__file__).parents[3] / "timeline/avsc/HoodieDeleteRecordList.avsc").read_text()
    )
)


def leftovers(base, archived: Collection[str] = ()) -> list[str]:
    """What no finished table has: files of instants that never completed, markers, pending
    instants. ``archived`` are commits that may have left the timeline."""
    base = Path(base)
    done = committed(base).union(archived)
    left = [f"{p}/{name}" for p, name, _, instant in base_files(base) if instant not in done]
    left += [f"{p}/{name}" for p, name, _, instant, _ in logs(base) if instant not in done]
    temp = base / ".hoodie" / ".temp"
    left += [str(path.relative_to(base)) for path in temp.rglob("*")] if temp.is_dir() else []
    return left + sorted(pending(base))


def state(base) -> bytes:
    """Return a digest of all files, which is equal for two runs of the same writes and faults.

    It tells everything about names and contents but which ids the run has made, how long it took,
    and what its times were: only their order. So what goes on from one of two tables with equal
    states, goes on from the other.
    """
    paths = (path for path in Path(base).rglob("*") if path.is_file())
    files = {path.relative_to(base).as_posix().encode(): path.read_bytes() for path in paths}
    texts = {_split(path): _split(_untimed(data)) for path, data in files.items()}
    order = sorted(texts, key=lambda path: (_masked(path), _masked(texts[path]), path))
    parts = [part for path in order for part in (path, texts[path])]
    times = {own for _, owned in parts for own in owned if len(own) == 17 and own.isdigit()}
    names = {time: b"<time %d>" % rank for rank, time in enumerate(sorted(times))}
    digest = hashlib.sha256()
    for between, owned in parts:
        renamed = [names.setdefault(own, b"<%d>" % len(names)) for own in owned]
        text = b"".join(chain.from_iterable(zip_longest(between, renamed, fillvalue=b"")))
        digest.update(b"%d:%b" % (len(text), text))
    return digest.digest()


_Split = tuple[tuple[bytes, ...], tuple[bytes, ...]]
"""The pieces of a text between what its run has made anew, and that."""


@lru_cache(maxsize=1000)
def _split(text: bytes) -> _Split:
    return tuple(_OWN.split(text)), tuple(_OWN.findall(text))


def _masked(text: _Split) -> bytes:
    return b"*".join(text[0])


@lru_cache(maxsize=1000)
def _untimed(data: bytes) -> bytes:
    """Return a file's content, of metadata without how long what it tells of took."""
    try:
        if data.startswith(b"Obj"):
            stored = fastavro.reader(io.BytesIO(data))
            told = [stored.writer_schema, *stored]
        elif data.startswith(b"{"):
            told = json.loads(data)
        else:
            return data
    except (ValueError, EOFError):  # torn
        return data
    return repr(_without_durations(told)).encode()


def _without_durations(told: Any) -> Any:
    if isinstance(told, dict):
        return {k: _without_durations(v) for k, v in told.items() if k not in _DURATIONS}
    return [*map(_without_durations, told)] if isinstance(told, list) else told


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return path → content and modification time of all files."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }
