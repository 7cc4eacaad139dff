"""The files of a bucket index: one a bucket, and recognised by writers with another index."""

import pytest

from strandline.write.index.bucket import refuse_bucket_files, stored_buckets
from strandline.write.tasks.placement import StoredFile
from timeline.errors import UnsupportedTableError

REST = "1526-4c67-a742-00249055b3e8-0"


def file(block, name="f.parquet"):
    return StoredFile("p", f"{block}-{REST}", name, 1)


def test_files_are_found_by_bucket():
    files = [file("00000003"), file("00000000")]
    assert stored_buckets("p", files, 4) == {3: files[0], 0: files[1]}
    assert stored_buckets("p", [], 4) == {}


def test_other_files_are_refused(subtests):
    for files, match in [
        ([file("6af55372", "x.parquet")], "x.parquet of partition 'p' isn't one of a bucket index"),
        ([file("0000000a")], "isn't one of a bucket index"),
        ([file("00000004")], "has bucket 4, but hoodie.bucket.index.num.buckets is 4"),
        ([file("00000001", "a"), file("00000001", "b")], "files a and b of .* bucket, 1"),
    ]:
        with subtests.test(files=files, match=match):
            with pytest.raises(UnsupportedTableError, match=match) as caught:
                stored_buckets("p", [file("00000000"), *files], 4)
            assert caught.value.hint


def test_another_index_does_not_write_among_buckets():
    for blocks in (["00000000"], ["00000001", "00000255"], ["00009999"]):
        with pytest.raises(UnsupportedTableError, match="are those of a bucket index"):
            refuse_bucket_files("p", [file(block) for block in blocks])
    for blocks in ([], ["6af55372"], ["00000001", "6af55372"], ["12345678"]):
        refuse_bucket_files("p", [file(block) for block in blocks])
