"""Damaged instants' files are read or refused."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from functools import cache

import pytest

from tests.kit.formats.avro_container import container, record_schema
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden
from tests.timeline.refusals import perhaps_refused
from timeline.encoding import avro, avro_binary
from timeline.errors import CorruptMetadataError
from timeline.instant import CLUSTERING, COMPACTION, REPLACE_COMMIT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata import codec
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.table.config import CONFIG_PATH, TableConfig

SCENARIOS = ("replace_cow_v6", "rollback_mor_v6_h0150", "mor_basic_v8", "savepoint_cow_v9")


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


def read_or_refused(kind: type, data: bytes) -> None:
    with perhaps_refused("^the/file"):
        assert isinstance(codec.decode(kind, data, source="the/file"), kind)


def test_every_cut_of_a_real_file_is_refused(subtests: pytest.Subtests) -> None:
    for action, state in kinds():
        with subtests.test(action=action, state=state):
            data = real_files()[action, state]
            kind = kind_of(action, state)
            cuts = {1, 2, 3, 4, 5, len(data) // 2, len(data) - 1, *range(7, len(data), 101)}
            for cut in sorted(cuts):
                with pytest.raises(CorruptMetadataError, match=rf"^the/file \({cut} bytes\)"):
                    codec.decode(kind, data[:cut], source="the/file")


@pytest.mark.property
def test_flipped_and_overwritten_bytes_are_read_or_refused(
    subtests: pytest.Subtests,
) -> None:
    for action, state in kinds():
        with subtests.test(action=action, state=state):
            data, kind = real_files()[action, state], kind_of(action, state)
            rng = random.Random(f"{action} {state}")
            for _ in range(150):
                at = rng.randrange(len(data))
                length = rng.choice((1, 1, 1, 4, 12))
                damage = rng.choice((rng.randbytes(length), b"\xff" * length, b"\x00" * length))
                read_or_refused(kind, data[:at] + damage + data[at + length :])


def test_a_file_of_another_kind_is_refused(subtests: pytest.Subtests) -> None:
    """A kind with no field in common would decode as an action that did nothing."""
    for action, state in kinds():
        with subtests.test(action=action, state=state):
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


def test_what_could_fill_the_memory_is_refused(
    subtests: pytest.Subtests,
) -> None:
    for name, data in HOSTILE.items():
        with subtests.test(name=name):
            is_commit = name == "deep JSON"
            kind = CommitMetadata if is_commit else codec.metadata_type("clean", State.COMPLETED)
            tracemalloc.start()
            try:
                with pytest.raises(CorruptMetadataError, match=r"^the/file"):
                    codec.decode(kind, data, source="the/file")
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 20 * len(data) + 2_000_000


def test_a_record_that_may_hold_itself_is_read() -> None:
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
