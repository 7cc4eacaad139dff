import dataclasses
import json
import typing
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.formats.avro_container import container_by_fastavro
from tests.kit.tables import golden
from timeline.encoding import avro
from timeline.encoding.json_text import UNCHECKED_BYTES, bounded_loads
from timeline.errors import CorruptMetadataError, UnsupportedTableError
from timeline.instant import State
from timeline.metadata import instant_metadata as metadata
from timeline.metadata.codec import decode, encode, metadata_type, plan_type
from timeline.metadata.instant_metadata import (
    CleanMetadata,
    CommitMetadata,
    InstantMetadata,
    RequestedReplaceMetadata,
    WriteStat,
)
from timeline.metadata.written_files import commit_files

KINDS = typing.get_args(InstantMetadata)


def values(hint: object) -> st.SearchStrategy:
    """Return a strategy for a type of ``timeline.metadata.instant_metadata``."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if type(None) in args:
        return st.none() | st.one_of(*(values(arg) for arg in args if arg is not type(None)))
    if origin is tuple:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(st.text(max_size=5), values(args[1]), max_size=3)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{name: values(kind) for name, kind in hints.items()})
    return {
        str: st.text(max_size=8),
        int: st.integers(min_value=-(2**31), max_value=2**31 - 1),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
    }[hint]


@pytest.mark.property
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [6, 9])
def test_what_is_encoded_decodes_again(kind: type, version: int) -> None:
    @settings(max_examples=25)
    @given(values(kind))
    def check(value: InstantMetadata) -> None:
        expected = value.by_folder() if isinstance(value, metadata.CommitMetadata) else value
        assert decode(kind, encode(value, version)) == expected

    check()


def test_empty_files_are_empty_values(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            assert decode(kind, b"") == kind()


@pytest.mark.property
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_as_by_fastavro(kind: type) -> None:
    @settings(max_examples=25)
    @given(values(kind))
    def check(value: InstantMetadata) -> None:
        data = encode(value, 9)
        assert avro.read_container(data) == container_by_fastavro(data)

    check()


STAT = WriteStat(
    file_id="f",
    path="p/f_0-1-2_1.parquet",
    num_writes=3,
    partition_path="p",
    file_size_in_bytes=400,
)
COMMIT = CommitMetadata({"p": (STAT,)}, {"schema": "{}"}, "UPSERT")


def test_version_6_writes_json() -> None:
    assert json.loads(encode(COMMIT, 6)) == {
        "partitionToWriteStats": {
            "p": [
                {
                    "fileId": "f",
                    "path": "p/f_0-1-2_1.parquet",
                    "cdcStats": None,
                    "prevCommit": "null",
                    "numWrites": 3,
                    "numDeletes": 0,
                    "numUpdateWrites": 0,
                    "numInserts": 0,
                    "totalWriteBytes": 0,
                    "totalWriteErrors": 0,
                    "tempPath": None,
                    "partitionPath": "p",
                    "totalLogRecords": 0,
                    "totalLogFilesCompacted": 0,
                    "totalLogSizeCompacted": 0,
                    "totalUpdatedRecordsCompacted": 0,
                    "totalLogBlocks": 0,
                    "totalCorruptLogBlock": 0,
                    "totalRollbackBlocks": 0,
                    "fileSizeInBytes": 400,
                    "minEventTime": None,
                    "maxEventTime": None,
                    "runtimeStats": {
                        "totalScanTime": 0,
                        "totalUpsertTime": 0,
                        "totalCreateTime": 0,
                    },
                }
            ]
        },
        "compacted": False,
        "extraMetadata": {"schema": "{}"},
        "operationType": "UPSERT",
    }


def test_a_delta_stat_has_its_own_fields_in_json() -> None:
    stat = dataclasses.replace(STAT, log_version=1, log_offset=0, base_file="b", log_files=("l",))
    record = json.loads(encode(CommitMetadata({"p": (stat,)}), 6))
    written = record["partitionToWriteStats"]["p"][0]
    assert {k: written[k] for k in ("logVersion", "logOffset", "baseFile", "logFiles")} == {
        "logVersion": 1,
        "logOffset": 0,
        "baseFile": "b",
        "logFiles": ["l"],
    }
    assert written["recordsStats"] == {"val": None}


@pytest.mark.parametrize("version", [8, 9])
def test_later_versions_write_avro_without_nulls_where_java_has_numbers(version: int) -> None:
    data = encode(COMMIT, version)
    record = avro.read_container(data)
    nulls = {k for k, v in record["partitionToWriteStats"]["p"][0].items() if v is None}
    assert nulls == {
        "totalLogFiles",
        "logVersion",
        "logOffset",
        "baseFile",
        "logFiles",
        "cdcStats",
        "prevBaseFile",
        "minEventTime",
        "maxEventTime",
        "tempPath",
    }
    assert {k for k, v in golden_stat().items() if v is None} <= nulls


def golden_stat() -> dict:
    files = golden.contents("cow_basic_v9", 0)
    (path,) = (p for p in files if p.endswith(".commit"))
    record = avro.read_container(files[path])
    return next(iter(record["partitionToWriteStats"].values()))[0]


@pytest.mark.parametrize("version", [6, 9])
def test_a_replacecommit_that_replaces_nothing_is_still_one(version: int) -> None:
    plain = encode(COMMIT, version)
    replacing = encode(COMMIT, version, replace=True)
    assert b"partitionToReplaceFileIds" not in plain
    assert b"partitionToReplaceFileIds" in replacing
    if version == 9:
        assert b"HoodieReplaceCommitMetadata" in replacing
    assert decode(CommitMetadata, replacing) == COMMIT


def test_json_nulls_and_missing_fields_are_defaults() -> None:
    data = json.dumps(
        {
            "partitionToWriteStats": {"p": [{"fileId": "f", "numWrites": None, "new": {"x": 1}}]},
            "extraMetadata": {"schema": None, "k": "v"},
            "operationType": None,
            "unknown": [1],
        }
    )
    value = decode(CommitMetadata, data.encode())
    assert value == CommitMetadata({"p": (WriteStat(file_id="f"),)}, {"k": "v"})


OTHER_SHAPES = [
    "{",
    "[]",
    "null",
    "5",
    '{"partitionToWriteStats": []}',
    '{"partitionToWriteStats": {"p": {}}}',
    '{"partitionToWriteStats": {"p": [5]}}',
    '{"partitionToWriteStats": {"p": [{"numWrites": "3"}]}}',
    '{"partitionToWriteStats": {"p": [{"numWrites": true}]}}',
    '{"compacted": 1}',
    '{"operationType": 7}',
    '{"extraMetadata": {"k": 1}}',
    "{}",
    '{"files": []}',
    '{"partitionToWriteStats": {"p": [{"runtimeStats": [1]}]}}',
    '{"partitionToWriteStats": {"p": [{"numWrites": 9223372036854775808}]}}',
    '{"partitionToWriteStats": {"p": [{"path": "\\ud800"}]}}',
    '{"partitionToWriteStats": {"\\ud800": []}}',
    "[" * 100_000,
]


def test_json_of_another_shape_is_corrupt(subtests: pytest.Subtests) -> None:
    for text in OTHER_SHAPES:
        with (
            subtests.test(text=text),
            pytest.raises(CorruptMetadataError, match=r"t/\.hoodie/1\.commit .*CommitMetadata"),
        ):
            decode(CommitMetadata, text.encode(), source="t/.hoodie/1.commit")


def test_an_avro_file_of_another_kind_is_corrupt() -> None:
    data = encode(metadata.SavepointMetadata(savepointed_by="me"), 9)
    for kind in (CleanMetadata, CommitMetadata):  # no field in common: nothing would be said
        with pytest.raises(CorruptMetadataError, match="it holds 'HoodieSavepointMetadata'"):
            decode(kind, data)
    with pytest.raises(CorruptMetadataError):
        decode(metadata.RollbackPlan, encode(RequestedReplaceMetadata(), 9)[:-1])


KIND_OF_FILE = [
    ("commit", State.REQUESTED, CommitMetadata),
    ("deltacommit", State.INFLIGHT, CommitMetadata),
    ("compaction", State.REQUESTED, metadata.CompactionPlan),
    ("compaction", State.INFLIGHT, metadata.CompactionPlan),
    ("logcompaction", State.REQUESTED, metadata.CompactionPlan),
    ("compaction", State.COMPLETED, CommitMetadata),
    ("replacecommit", State.REQUESTED, RequestedReplaceMetadata),
    ("replacecommit", State.INFLIGHT, CommitMetadata),
    ("replacecommit", State.COMPLETED, CommitMetadata),
    ("clustering", State.REQUESTED, RequestedReplaceMetadata),
    ("clustering", State.COMPLETED, CommitMetadata),
    ("clean", State.INFLIGHT, metadata.CleanerPlan),
    ("clean", State.COMPLETED, CleanMetadata),
    ("rollback", State.REQUESTED, metadata.RollbackPlan),
    ("restore", State.COMPLETED, metadata.RestoreMetadata),
    ("savepoint", State.INFLIGHT, metadata.SavepointMetadata),
    ("indexing", State.REQUESTED, metadata.IndexPlan),
    ("indexing", State.COMPLETED, metadata.IndexCommitMetadata),
]


def test_which_file_says_what(subtests: pytest.Subtests) -> None:
    for action, state, kind in KIND_OF_FILE:
        with subtests.test(action=action, state=state):
            assert metadata_type(action, state) is kind


def test_files_that_say_nothing_known() -> None:
    for state in State:
        with pytest.raises(UnsupportedTableError, match="schemacommit"):
            metadata_type("schemacommit", state)
    with pytest.raises(UnsupportedTableError, match="commit"):
        plan_type("commit")


@pytest.mark.property
@pytest.mark.parametrize(
    "filling",
    ["0,", "[{}],", *(pytest.param(text, marks=pytest.mark.product) for text in ("[],", "{},"))],
)
def test_json_of_nothing_but_values_is_corrupt(filling: str) -> None:
    """It would be thirty times its size in memory."""
    values = filling.encode() * (UNCHECKED_BYTES // len(filling) + 1)
    text = b'{"partitionToWriteStats":{},"other":[%b0]}' % values
    for read in (lambda: decode(CommitMetadata, text), lambda: commit_files(text)):
        with pytest.raises(CorruptMetadataError, match="allowed: one for each 4"):
            read()


@pytest.mark.property
def test_large_json_as_writers_lay_it_out_is_dense_by_far_less() -> None:
    schema = json.dumps({"fields": [{"name": "f", "type": ["null", "long"]}] * 30})
    stat = WriteStat("f", "p/f_1-0-1_20261121090000001.parquet", file_size_in_bytes=1)
    commit = CommitMetadata({"p": (stat,) * 12000}, extra_metadata={"schema": schema * 30})
    text = encode(commit, 6)
    compact = json.dumps(json.loads(text), separators=(",", ":")).encode()
    assert len(compact) > UNCHECKED_BYTES
    for data in (text, compact):
        assert decode(CommitMetadata, data) == commit
        bounded_loads(data)
