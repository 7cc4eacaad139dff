"""Damaged metadata of every kind is read, or refused with its own error, fast and in little memory.

Real files of the golden tables are cut, flipped, swapped and replaced. The result is a value or a
``CorruptMetadataError`` that names the file: no other exception, no endless reading, no memory
beyond a small multiple of the file's size.
"""

from __future__ import annotations

import json
import random
import re
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit import golden
from tests.kit.avro_container import container, record_schema
from tests.kit.memory_storage import MemoryStorage
from timeline.archive.archived_timeline import HistoryArchive
from timeline.archive.log_archive import LogArchive
from timeline.encoding import avro, avro_binary
from timeline.errors import CorruptMetadataError, StorageUnavailableError, StrandlineError
from timeline.instant import CLUSTERING, COMPACTION, REPLACE_COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata import codec
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.storage.base import Storage
from timeline.table.config import CONFIG_PATH, TableConfig

SCENARIOS = ("replace_cow_v6", "rollback_mor_v6_h0150", "mor_basic_v8", "savepoint_cow_v9")
HISTORY = ".hoodie/timeline/history"


@cache
def real_files() -> dict[tuple[str, str], bytes]:
    """Return (action, state) → the content of one real file, for JSON and Avro tables."""
    found: dict[tuple[str, str], bytes] = {}
    for scenario in SCENARIOS:
        version = golden.info(scenario)["table_version"]
        for step in golden.steps(scenario):
            storage = golden.GoldenStorage(scenario, step)
            client = TableMetaClient.open(storage)
            for info in storage.list(client.layout.folder):
                instant = client.layout.parse(info.name, 0)
                if instant is not None and info.size:
                    key = (instant.action, f"{instant.state.value} {version}")
                    path = f"{client.layout.folder}/{info.name}"
                    found.setdefault(key, storage.read(path))
    return found


def kinds() -> list[tuple[str, str]]:
    return sorted(real_files())


def kind_of(action: str, state: str) -> type:
    state = State(state.split()[0])
    if state is State.REQUESTED:
        return codec.plan_type(action)
    return codec.metadata_type(action, state)


@contextmanager
def perhaps_refused(named: str, refused: list[str] | None = None) -> Iterator[None]:
    """Let pass an error of Strandline's that names the file."""
    try:
        yield
    except StrandlineError as error:
        if re.search(named, str(error)) is None:
            raise
        if refused is not None:
            refused.append(str(error))


def read_or_refused(kind: type, data: bytes) -> None:
    with perhaps_refused("^the/file"):
        assert isinstance(codec.decode(kind, data, source="the/file"), kind)


@pytest.mark.parametrize(("action", "state"), kinds())
def test_every_cut_of_a_real_file_is_refused(action: str, state: str) -> None:
    data = real_files()[action, state]
    kind = kind_of(action, state)
    cuts = {1, 2, 3, 4, 5, len(data) // 2, len(data) - 1, *range(7, len(data), 101)}
    for cut in sorted(cuts):
        with pytest.raises(CorruptMetadataError, match=rf"^the/file \({cut} bytes\)"):
            codec.decode(kind, data[:cut], source="the/file")


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(("action", "state"), kinds())
def test_flipped_and_overwritten_bytes_are_read_or_refused(
    action: str, state: str, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:  # as on an executor without fastavro
        monkeypatch.setattr(avro, "fastavro", None)
    data, kind = real_files()[action, state], kind_of(action, state)
    rng = random.Random(f"{action} {state}")
    for _ in range(150):
        at = rng.randrange(len(data))
        length = rng.choice((1, 1, 1, 4, 12))
        damage = rng.choice((rng.randbytes(length), b"\xff" * length, b"\x00" * length))
        read_or_refused(kind, data[:at] + damage + data[at + length :])


@pytest.mark.parametrize(("action", "state"), kinds())
def test_a_file_of_another_kind_is_refused(action: str, state: str) -> None:
    """A kind with no field in common would decode as an action that did nothing."""
    kind = kind_of(action, state)
    others = {data for key, data in real_files().items() if kind_of(*key) is not kind}
    for data in (*others, b'{"files": []}', b"{}", b"\x00" * 64, b"PAR1", b"#HUDI#"):
        with pytest.raises(CorruptMetadataError):
            codec.decode(kind, data)


def long(value: int) -> bytes:
    out = bytearray()
    avro_binary.put_long(out, value)
    return bytes(out)


CLEAN = "HoodieCleanMetadata"
ITSELF = record_schema(CLEAN, next=CLEAN)
CHAIN = record_schema(CLEAN, next=["null", CLEAN])
TEXT = record_schema(CLEAN, x="string")
LONG = 1 << 40

HOSTILE = {
    "a record of itself": container(ITSELF, b"x"),
    "a chain of records": container(CHAIN, b"\x02" * 300_000 + b"\x00"),
    "records without bytes": container(record_schema(CLEAN), (LONG, b"")),
    "more records than bytes": container(TEXT, (LONG, b"\x00")),
    "a negative number of records": container(TEXT, (-1, b"\x00")),
    "a long text": container(TEXT, long(LONG) + b"abc"),
    "a text of negative length": container(TEXT, long(-5) + b"abc"),
    "a long number": avro.MAGIC + b"\xff" * 1_000_000,
    "a large block": container(TEXT, b"\x02a")[:-20] + long(LONG) + b"abc",
    "no record": container("string", b"\x02a"),
    "a schema that is deep": container(json.loads("[" * 500 + "]" * 500), b"\x00"),
    "a schema that is no schema": container({"name": 5}, b"\x00"),
    "deep JSON": b"[" * 200_000,
}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_what_could_fill_the_memory_is_refused(
    name: str, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr(avro, "fastavro", None)
    data = HOSTILE[name]
    kind = CommitMetadata if name == "deep JSON" else codec.metadata_type("clean", State.COMPLETED)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMetadataError, match=r"^the/file"):
            codec.decode(kind, data, source="the/file")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(data) + 2_000_000


def test_a_record_that_may_hold_itself_is_read_in_plain_python() -> None:
    data = container(CHAIN, b"\x02\x02\x00")
    assert avro.read_container(data) == {"next": {"next": {"next": None}}}


# Instants.


def followed(scenario: str) -> Iterator[tuple[TableMetaClient, Instant, MemoryStorage]]:
    """Yield each instant of a scenario's last step, with the table copied to memory."""
    step = golden.steps(scenario)[-1]
    storage = MemoryStorage()
    for path, data in golden.contents(scenario, step).items():
        storage.files[path] = (data, 0)
    client = TableMetaClient.open(storage)
    for instant in client.active_timeline():
        yield client, instant, storage


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_what_another_instant_did_is_refused_where_it_shows(scenario: str) -> None:
    """The metadata of a clean, rollback or restore has its own time; so have base files' names.

    Delta commits that only appended to logs have neither and aren't tested here.
    """
    contents: dict[type, list[bytes]] = {}
    for client, instant, storage in followed(scenario):
        if not instant.is_completed or instant.action == "savepoint":
            continue
        path = client.path_of(instant)
        own = storage.files[path][0]
        said = client.read(instant)
        for other in contents.setdefault(type(said), []):
            storage.files[path] = (other, 0)
            with pytest.raises(CorruptMetadataError, match=path):
                client.read(instant)
        storage.files[path] = (own, 0)
        stats = getattr(said, "partition_to_write_stats", {"": ()})
        if any(not s or not s[0].path.rpartition("/")[2].startswith(".") for s in stats.values()):
            contents[type(said)].append(own)
    assert contents


@pytest.mark.parametrize("scenario", ["replace_cow_v6", "replace_mor_v9"])
def test_an_empty_file_is_refused_where_it_would_hide_something(scenario: str) -> None:
    """No other file has a replacecommit's replaced groups, or a compaction's plan."""
    seen = set()
    for client, instant, storage in followed(scenario):
        if instant.is_completed:
            path = client.path_of(instant)
            storage.files[path] = (b"", 0)
            if instant.action == REPLACE_COMMIT:
                with pytest.raises(CorruptMetadataError, match=f"{path} .0 bytes. doesn't say"):
                    client.read(instant)
            elif instant.action != "savepoint":
                said = client.read(instant)
                assert said == type(said)()
            seen.add(instant.action)
        elif instant.action in (COMPACTION, CLUSTERING):
            asked = Instant(instant.requested_time, instant.action, State.REQUESTED)
            storage.files[client.path_of(asked)] = (b"", 0)
            with pytest.raises(CorruptMetadataError, match=r"requested .0 bytes. doesn't say"):
                client.read_plan(instant)
            seen.add(instant.action)
        elif instant.action == REPLACE_COMMIT:
            asked = Instant(instant.requested_time, instant.action, State.REQUESTED)
            storage.files[client.path_of(asked)] = (b"", 0)
            assert client.read_plan(instant) == type(client.read_plan(instant))()
            seen.add("no clustering")
    assert seen >= {"replacecommit", "clean"}


def test_a_rollback_or_restore_under_way_says_what_it_undoes() -> None:
    storage = MemoryStorage()
    storage.files[CONFIG_PATH] = (TableConfig.create(name="t").to_bytes(), 0)
    client = TableMetaClient.open(storage)
    for action in ("rollback", "restore", "clean"):
        asked = client.create_requested(action, "20240101000000000")
        assert client.read_plan(asked) == codec.plan_type(action)()  # has done nothing yet
        inflight = client.transition_to_inflight(asked)
        if action == "clean":
            assert client.read_plan(inflight) == codec.plan_type(action)()
            continue
        with pytest.raises(
            CorruptMetadataError, match=rf"{action}\.requested .0 bytes. doesn't say"
        ):
            client.read_plan(inflight)


# Properties, partition metadata, archives.


def test_properties_are_read_or_refused() -> None:
    good = golden.contents("cow_basic_v9", 0)[CONFIG_PATH]
    rng = random.Random(9)
    foreign = [b"", b"\x00" * 100, b"{}", rng.randbytes(500), b"\\u12", b"hoodie.table.name"]
    flipped = []
    for _ in range(300):
        at = rng.randrange(len(good))
        flipped.append(good[:at] + rng.randbytes(1) + good[at + 1 :])
    storage = MemoryStorage()
    storage.files[".hoodie/timeline/20240101000000000.commit.requested"] = (b"", 0)
    refused: list[str] = []
    for data in (*foreign, *flipped, *(good[:cut] for cut in range(0, len(good), 37))):
        storage.files[CONFIG_PATH] = (data, 0)
        with perhaps_refused("hoodie.properties|/memory/t", refused):
            client = TableMetaClient.open(storage)
            client.active_timeline()
            assert client.config.archive_folder
    assert len(refused) >= len(foreign)


@pytest.mark.parametrize("key", ["hoodie.timeline.path", "hoodie.timeline.history.path"])
@pytest.mark.parametrize("value", ["../x", "a/../../b", ".", "a//b", "a\0b"])
def test_a_folder_outside_the_table_is_refused(key: str, value: str) -> None:
    config = TableConfig.create(name="t").with_properties({key: value})
    storage = MemoryStorage()
    storage.files[CONFIG_PATH] = (config.to_bytes(), 0)
    with pytest.raises(CorruptMetadataError, match=r"hoodie\.properties names a folder"):
        TableMetaClient.open(storage).active_timeline()


def history(scenario: str = "archival_mor_v9") -> MemoryStorage:
    storage = MemoryStorage()
    for path, data in golden.contents(scenario, golden.steps(scenario)[-1]).items():
        storage.files[path] = (data, 0)
    return storage


def read_history(storage: Storage) -> None:
    archive = HistoryArchive(storage, HISTORY)
    for instant in archive.timeline:
        archive.read(instant)
    assert archive.completion_times("", "~")


def test_damaged_history_is_read_or_refused() -> None:
    storage = history()
    read_history(storage)
    rng = random.Random(17)
    names = sorted(
        path for path in storage.files if path.startswith(HISTORY) and ".crc" not in path
    )
    for path in (names[0], names[1], names[-1]):
        good = storage.files[path]
        damaged = [b"", b"9" * 5000, good[0][: len(good[0]) // 2], storage.files[names[-2]][0]]
        for _ in range(15):
            at = rng.randrange(len(good[0]))
            length = rng.choice((1, 1, 8))
            damage = rng.choice((rng.randbytes(length), b"\xff" * length))
            damaged.append(good[0][:at] + damage + good[0][at + length :])
        for data in damaged:
            storage.files[path] = (data, 0)
            with perhaps_refused(HISTORY):
                assert HistoryArchive(storage, HISTORY).completion_times("", "~")
        storage.files[path] = good
    read_history(storage)


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "", "a/../b", "[" * 3, "\\ud800"])
def test_a_manifest_that_leads_elsewhere_is_refused(name: str) -> None:
    storage = history()
    for path in [path for path in storage.files if "/manifest_" in path]:
        storage.files[path] = (f'{{"files": [{{"fileName": "{name}"}}]}}'.encode(), 0)
    with pytest.raises(CorruptMetadataError, match=HISTORY):
        assert HistoryArchive(storage, HISTORY).timeline


@pytest.mark.parametrize(
    "columns",
    [
        {"instantTime": [1], "completionTime": ["2"], "action": ["commit"]},
        {"instantTime": [None], "completionTime": ["2"], "action": ["commit"]},
        {"completionTime": ["2"], "action": ["commit"]},
        {"instantTime": ["1"], "completionTime": [2], "action": ["commit"]},
        {"other": [1]},
    ],
)
def test_a_history_file_of_other_columns_is_named(columns: dict[str, list[object]]) -> None:
    storage = history()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    for path in [path for path in storage.files if path.endswith(".parquet")]:
        storage.files[path] = (sink.getvalue().to_pybytes(), 0)
    with pytest.raises(CorruptMetadataError, match=r"\.parquet is no history file"):
        assert HistoryArchive(storage, HISTORY).timeline


class BrokenFile:
    """A file whose disk fails while it is read."""

    closed = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, *_: int) -> int:
        return 0

    def tell(self) -> int:
        raise OSError(5, "Input/output error")

    size = read = tell

    def close(self) -> None:
        """Nothing is held."""

    flush = close


class BrokenDisk(MemoryStorage):
    def open_input(self, path: str, *about: object) -> pa.NativeFile:
        return pa.PythonFile(BrokenFile(), mode="r")


def test_a_disk_that_fails_while_history_is_read_is_no_damage() -> None:
    storage = BrokenDisk()
    storage.files = history().files
    with pytest.raises(StorageUnavailableError, match=r"\.parquet: "):
        assert HistoryArchive(storage, HISTORY).timeline


def log_files() -> dict[str, bytes]:
    scenario = "archival_cow_v6"
    files = golden.contents(scenario, golden.steps(scenario)[-1])
    return {p: d for p, d in files.items() if "/.commits_" in p}


def test_log_archives_are_read_or_refused() -> None:
    path, data = next(iter(log_files().items()))
    folder = path.rpartition("/")[0]
    storage = MemoryStorage()
    rng = random.Random(6)
    damaged = [b"x", rng.randbytes(200), b"#HUDI#" + b"\x7f" * 40, data.replace(b"Time", b"time")]
    for length in (1, 8):
        for _ in range(40):
            at = rng.randrange(len(data))
            damaged.append(data[:at] + rng.randbytes(length) + data[at + length :])
    for content in damaged:
        storage.files[path] = (content, 0)
        with perhaps_refused(f"{folder}|can't be read"):
            archive = LogArchive(storage, folder)
            for instant in archive.timeline:
                archive.read(instant)
