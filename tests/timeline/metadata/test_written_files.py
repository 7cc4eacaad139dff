"""The files of commits, read in parts: the same as in the whole metadata, or a refusal."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from itertools import product

import pytest

from tests.kit.tables import golden
from timeline.errors import CorruptMetadataError
from timeline.meta_client import TableMetaClient
from timeline.metadata import codec
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat
from timeline.metadata.written_files import CommitFiles, WrittenFiles, commit_files, written_files

Sizes = dict[str, dict[str, int]]


def whole(metadata: CommitMetadata) -> tuple[Sizes, set[str]]:
    """Return a commit's files, partition → name → size, and the times they supersede."""
    sizes: Sizes = {}
    previous = set()
    for partition, stats in metadata.partition_to_write_stats.items():
        found = sizes.setdefault(partition, {})
        for stat in stats:
            paths = {stat.path: stat.file_size_in_bytes, **(stat.cdc_stats or {})}
            found.update({path.rpartition("/")[2]: n for path, n in paths.items() if path})
            previous.add(stat.prev_commit or "null")
    return sizes, previous


def together(parts: Iterable[WrittenFiles]) -> tuple[Sizes, set[str]]:
    """Return the same of metadata that was read in parts."""
    sizes: Sizes = defaultdict(dict)
    previous = set()
    for part in parts:
        sizes[part.partition].update(part.sizes)
        previous |= part.previous
    return dict(sizes), previous


def commits(scenario: str) -> list[bytes]:
    """Return the files of a golden table's commits that are on its last timeline."""
    meta = TableMetaClient.open(golden.GoldenStorage(scenario, golden.steps(scenario)[-1]))
    done = meta.active_timeline().completed()
    actions = ("commit", "deltacommit", "replacecommit")
    return [meta.read_bytes(instant) for instant in done if instant.action in actions]


A_COMMIT = CommitMetadata(
    {
        "a": tuple(
            WriteStat(
                path=f"a/f{n}-0_0-1-1_20260101000000000.parquet",
                file_size_in_bytes=n,
                prev_commit="20250101000000000" if n % 2 else "null",
                log_files=(f"log}}] {n}",) if n % 3 else None,
                cdc_stats={f"a/.f{n}-0_20260101000000000.log.1_0-1-1.cdc": 7} if n == 5 else None,
            )
            for n in range(20)
        ),
        'odd }] "},{" \\ é': (WriteStat(path='o/}] },{ "\\ é.parquet', file_size_in_bytes=3),),
    },
    {"schema": '{"fields":[{"a":1},{"b":"}]"}]}'},
    partition_to_replace_file_ids={"a": ("f1-0", "}],[")},
)


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_golden_commits_read_as_they_decode(scenario: str) -> None:
    for data in commits(scenario):
        decoded = codec.decode(CommitMetadata, data)
        files = CommitFiles.of(decoded)
        assert files != CommitFiles()
        for batch in ({}, {"batch_bytes": 1}):
            assert together(written_files(data, **batch)) == whole(decoded)
            assert commit_files(data, **batch) == files


def test_however_much_is_read_at_once(subtests: pytest.Subtests) -> None:
    for version, batch_bytes in product([6, 9], [1, 10, 500, 1 << 20]):
        with subtests.test(version=version, batch_bytes=batch_bytes):
            data = codec.encode(A_COMMIT, version)
            parts = list(written_files(data, batch_bytes=batch_bytes))
            assert together(parts) == whole(A_COMMIT)
            assert all(part.is_complete for part in parts)
            if version == 6:
                assert (len(parts) > 2) == (batch_bytes < 1000)


@pytest.mark.parametrize("layout", [{"indent": 2}, {"indent": None}, {"separators": (",", ":")}])
def test_json_may_be_laid_out_as_it_likes(layout: dict[str, object]) -> None:
    record = json.loads(codec.encode(A_COMMIT, 6))
    shuffled = {key: record[key] for key in reversed(record)}
    for each in (record, shuffled):
        data = json.dumps(each, **layout).encode()  # type: ignore[arg-type]  # as json has it
        for batch_bytes in (1, 300, 1 << 20):
            assert together(written_files(data, batch_bytes=batch_bytes)) == whole(A_COMMIT)


APPENDS = CommitMetadata(
    {
        "p": (
            WriteStat(path="p/.f_0.log.1_0-1-1", file_size_in_bytes=5, log_offset=9, log_version=1),
            WriteStat(path="p/.g_0.log.1_0-1-1", file_size_in_bytes=5, log_offset=0, log_version=1),
            WriteStat(path=None, cdc_stats={"p/c": 7}),
        ),
        "q": (),
    },
    operation_type="UPSERT",
    compacted=True,
)


def test_what_a_commit_says_of_files(subtests: pytest.Subtests) -> None:
    for version, metadata, batch_bytes in product([6, 9], [A_COMMIT, APPENDS], [1, 500, 1 << 20]):
        with subtests.test(version=version, metadata=metadata, batch_bytes=batch_bytes):
            said = commit_files(codec.encode(metadata, version), batch_bytes=batch_bytes)
            assert said == CommitFiles.of(metadata)
            assert said.rest.operation_type == metadata.operation_type
            if metadata is APPENDS:
                of_p = [
                    (".f_0.log.1_0-1-1", 14, True),
                    (".g_0.log.1_0-1-1", 5, False),
                    ("c", 7, False),
                ]
                assert said.files == {"p": of_p, "q": []}


def test_an_empty_commit_says_nothing() -> None:
    assert commit_files(b"") == CommitFiles()
    assert commit_files(codec.encode(CommitMetadata(), 6)) == CommitFiles()
    assert commit_files(codec.encode(CommitMetadata({"p": ()}), 6)) != CommitFiles()
    assert commit_files(codec.encode(CommitMetadata(compacted=True), 9)) != CommitFiles()


def test_partitions_without_stats_and_stats_without_files() -> None:
    for text in ('{"p": []}', '{"p": [ ]}'):
        (part,) = written_files(f'{{"partitionToWriteStats": {text}}}'.encode())
        assert (part.sizes, part.is_complete) == ({}, True)
    (part,) = written_files(b'{"partitionToWriteStats": {"p": [{"path": null}, {}]}}')
    assert (part.sizes, part.is_complete) == ({}, False)
    for nothing in ("null", "{}", '{"p": null}'):
        assert list(written_files(f'{{"partitionToWriteStats": {nothing}}}'.encode())) == []


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
def test_every_cut_is_refused(version: int) -> None:
    data = codec.encode(A_COMMIT, version)
    for end in range(1, len(data), 7):
        with pytest.raises(CorruptMetadataError, match="the/file"):
            list(written_files(data[:end], source="the/file"))


@pytest.mark.property
@pytest.mark.parametrize("version", [6, 9])
def test_damage_is_refused_or_reads_as_it_decodes(version: int) -> None:
    good = codec.encode(A_COMMIT, version)
    chance = random.Random(version)
    refused = 0
    for _ in range(400):
        data = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.choice(b'"{}[],:x0\\\x00\xff')
        try:
            together(written_files(bytes(data), batch_bytes=chance.choice((1, 400, 1 << 20))))
        except CorruptMetadataError:
            refused += 1
        try:
            expected = CommitFiles.of(codec.decode(CommitMetadata, bytes(data)))
        except CorruptMetadataError:
            continue  # it may lie in a statistic, which isn't read
        assert commit_files(bytes(data)) == expected
    assert 50 < refused < 400


NO_COMMITS = [
    "[]",
    "{}",
    "{} ",
    '{"partitionToWriteStats": []}',
    '{"partitionToWriteStats": {"p": {}}}',
    '{"partitionToWriteStats": {"p": [1]}}',
    '{"partitionToWriteStats": {"p": [{"path": 1}]}}',
    '{"partitionToWriteStats": {"p": [{"path": "f", "fileSizeInBytes": "1"}]}}',
    '{"partitionToWriteStats": {"p": [{"path": "f", "fileSizeInBytes": 1e3}]}}',
    '{"partitionToWriteStats": {"p": [{"path": "f", "fileSizeInBytes": 9999999999999999999}]}}',
    '{"partitionToWriteStats": {"p": [{"path": "f", "cdcStats": [1]}]}}',
    '{"partitionToWriteStats": {"p": [{"path": "\\ud800"}]}}',
    '{"partitionToWriteStats": {"p": [{"path": "f"}]}} {}',
    '{"partitionToWriteStats": {"p": [{"path": "f"}]}, }',
    '{"partitionToWriteStats": {"p": [{"path": "f"}] "q": []}}',
    '{"partitionToWriteStats": {}, "x": }',
    '{"partitionToWriteStats": {}, "x": }}',
    '{"partitionToWriteStats": {1: []}}',
]


def test_what_is_no_commit_is_refused(subtests: pytest.Subtests) -> None:
    for text in NO_COMMITS:
        with subtests.test(text=text):
            with pytest.raises(CorruptMetadataError):
                list(written_files(text.encode()))
            for batch_bytes in (1, 1 << 20):
                with pytest.raises(CorruptMetadataError, match="the/file"):
                    commit_files(text.encode(), source="the/file", batch_bytes=batch_bytes)


def test_files_of_no_size_are_refused(subtests: pytest.Subtests) -> None:
    for stat in [
        '{"path": "f", "fileSizeInBytes": -1}',
        '{"path": "f", "logOffset": "1"}',
        '{"path": "f", "fileSizeInBytes": 9, "logOffset": -1}',
        '{"path": "f", "cdcStats": {"c": -1}}',
        '{"path": "f", "cdcStats": {"c": null, "d": "1"}}',
    ]:
        with subtests.test(stat=stat), pytest.raises(CorruptMetadataError):
            commit_files(f'{{"partitionToWriteStats": {{"p": [{stat}]}}}}'.encode())


def test_another_record_in_avro_is_refused() -> None:
    meta = TableMetaClient.open(golden.GoldenStorage("replace_cow_v9", 14))
    clean = next(i for i in meta.active_timeline() if i.action == "clean")
    with pytest.raises(CorruptMetadataError, match="HoodieCleanMetadata"):
        list(written_files(meta.read_bytes(clean)))
