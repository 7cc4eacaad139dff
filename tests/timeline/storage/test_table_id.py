import os

import pytest

from timeline.storage.table_id import TableId, absolute, is_relative


def test_spellings_of_one_local_table(subtests: pytest.Subtests) -> None:
    for spelling in [
        "/a/t",
        "/a/t/",
        "//a//t",
        "/a/./t",
        "/a/b/../t",
        "file:/a/t",
        "file:///a/t/",
        "FILE:///a/t",
    ]:
        with subtests.test(spelling=spelling):
            assert TableId.of(spelling) == TableId("file", "", "/a/t")


def test_relative_paths_are_below_the_working_directory() -> None:
    assert TableId.of("t") == TableId.of(os.path.join(os.getcwd(), "t"))


def test_spellings_of_one_remote_table(subtests: pytest.Subtests) -> None:
    for one, other in [
        ("s3://bucket/t", "s3a://bucket/t/"),
        ("s3://bucket/t", "s3n://bucket//t"),
        ("gs://bucket/t", "gcs://bucket/t"),
        ("abfs://c@account/t", "abfss://c@account/t"),
        ("memory://a/t", "memory:///a/t"),
    ]:
        with subtests.test(one=one, other=other):
            assert TableId.of(one) == TableId.of(other)


def test_different_tables(subtests: pytest.Subtests) -> None:
    for one, other in [
        ("/a/t", "/a/T"),
        ("/a/t", "/a/t%20"),
        ("s3://one/t", "s3://other/t"),
        ("s3://bucket/t", "gs://bucket/t"),
        ("s3://bucket/t", "/bucket/t"),
    ]:
        with subtests.test(one=one, other=other):
            assert TableId.of(one) != TableId.of(other)


def test_as_url() -> None:
    assert str(TableId.of("s3a://bucket/a/t/")) == "s3://bucket/a/t"
    assert str(TableId.of("/a/t")) == "file:///a/t"


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        TableId.of("")


def test_a_relative_base_path_can_be_made_absolute(subtests: pytest.Subtests) -> None:
    for base_path in ["t", "./t", "../t", "a/t", "file:t", "local:a/t"]:
        with subtests.test(base_path=base_path):
            assert is_relative(base_path)
            assert not is_relative(absolute(base_path))
            assert TableId.of(absolute(base_path)) == TableId.of(base_path)


def test_any_other_base_path_keeps_its_spelling(subtests: pytest.Subtests) -> None:
    for base_path in ["/t", "/a/../t", "file:/t", "file:///t", "s3://b/t", "//t"]:
        with subtests.test(base_path=base_path):
            assert not is_relative(base_path)
            assert absolute(base_path) == base_path
