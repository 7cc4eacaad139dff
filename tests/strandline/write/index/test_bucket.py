"""Tables with a bucket index: one file group a bucket, known to later writers, kept whole."""

import pyarrow as pa
import pytest

from strandline.records.meta_fields import IS_DELETED
from strandline.write.index.bucket import BucketNumbers
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.index.walk import bucket
from tests.strandline.write.refusals import refused
from tests.strandline.write.tables import change_properties, client, row, table
from timeline.errors import ConfigError, UnsupportedTableError, WriteConflictError

OPTIONS = {"index__type": "BUCKET", "bucket__index__num__buckets": "3"}
NO_BUCKET = r"of partition 'eu' isn't one of a bucket index|of partition 'eu' has bucket \d+, but"
"""One file id in 43 begins with eight digits by chance, which is too great a bucket."""
LOCK = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
KEYS = [f"k{number}" for number in range(12)]


def written(base, *rows, operation="upsert", storage=None, **options):
    with client(base, storage, **(OPTIONS | options)) as c:
        getattr(c, operation)(table(*rows))
    return base


def groups(base):
    """Return (partition, bucket) of each file group, sorted."""
    return sorted((p, int(file_id[:8])) for p, file_id in reader.newest_files(base))


def names(base):
    return {each["id"]: each["name"] for each in reader.rows(base)}


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_keys_lie_in_the_file_groups_of_their_buckets(tmp_path, operation):
    base = written(tmp_path / "t", *map(row, KEYS), operation=operation)
    assert groups(base) == [("eu", 0), ("eu", 1), ("eu", 2)]
    written(base, *(row(key, ts=2) for key in KEYS[:6]), row("k0", "us"))
    assert groups(base) == [("eu", 0), ("eu", 1), ("eu", 2), ("us", bucket("k0"))]
    assert len(reader.rows(base)) == 13


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_rows_that_are_inserted_join_the_bucket_even_twice(tmp_path, operation):
    """A bulk insert of Hudi's opens a second file group, which its other writes refuse."""
    base = written(tmp_path / "t", row("a"))
    written(base, row("a", name="again"), row("a", name="and again"), operation=operation)
    assert groups(base) == [("eu", bucket("a"))]
    assert len(reader.rows(base, unique=False)) == 3


def test_only_the_newest_row_of_a_key_is_upserted(tmp_path):
    rows = [row("a", ts=3, name="new"), row("a", ts=2, name="old"), row("b", ts=1)]
    base = written(tmp_path / "t", *rows)
    assert names(base) == {"a": "new", "b": "b@1"}
    written(base, row("a", ts=4, name="newer"), row("a", ts=4, name="newest"), row("a", ts=1))
    assert names(base)["a"] == "newest"


def test_inserts_are_combined_if_asked(tmp_path):
    rows = [row("a", ts=2, name="new"), row("a", ts=1, name="old")]
    base = written(tmp_path / "t", *rows, operation="insert", combine__before__insert="true")
    assert names(base) == {"a": "new"}


def test_rows_that_replace_stored_ones_open_new_groups_of_their_buckets(tmp_path):
    base = written(tmp_path / "t", *map(row, KEYS))
    before = set(reader.newest_files(base))
    written(base, row("k0", name="new"), operation="insert_overwrite")
    assert groups(base) == [("eu", bucket("k0"))]
    assert not before & set(reader.newest_files(base))
    written(base, row("k0", ts=2), row("k1"))
    assert names(base) == {"k0": "k0@2", "k1": "k1@1"}


def test_deletes_of_unknown_keys_open_no_file_group(tmp_path):
    base = written(tmp_path / "t", row("a"))
    stored = groups(base)
    others = [key for key in KEYS if bucket(key) != bucket("a")]
    written(base, *map(row, others), row("a", "us"), operation="delete")
    assert (groups(base), names(base)) == (stored, {"a": "a@1"})
    written(base, row("a"), operation="delete")
    assert names(base) == {}


def test_deletes_that_are_flagged_open_no_file_group(tmp_path):
    base = written(tmp_path / "t", row("a"))
    flags = pa.array([True, True, False])
    rows = table(row("a", ts=2), row("b"), row("a", "us"))
    with client(base, **OPTIONS) as c:
        c.upsert(rows.append_column("_hoodie_is_deleted", flags))
    assert groups(base) == sorted({("eu", bucket("a")), ("us", bucket("a"))})
    assert [each["region"] for each in reader.rows(base)] == ["us"]


@pytest.mark.parametrize("operation", ["upsert", "insert_overwrite"])
@pytest.mark.parametrize(("deleted_at", "left"), [(10, {}), (1, {"a": "a@5"})])
def test_a_delete_counts_against_a_row_of_its_own_write(tmp_path, operation, deleted_at, left):
    """The bucket has no file yet, so only the two rows decide which one is newer."""
    rows = table(row("a", ts=5), row("a", ts=deleted_at))
    with client(tmp_path / "t", **OPTIONS, combine__before__insert="true") as c:
        getattr(c, operation)(rows.append_column(IS_DELETED, pa.array([False, True])))
    assert names(tmp_path / "t") == left


def test_a_later_writer_needs_no_options(tmp_path):
    base = written(tmp_path / "t", row("a"))
    with client(base) as c:
        c.upsert(table(*map(row, KEYS)))
    assert groups(base) == [("eu", 0), ("eu", 1), ("eu", 2)]


@pytest.mark.parametrize(
    "options",
    [
        {"index__type": "SIMPLE", "bucket__index__num__buckets": None},
        {"bucket__index__num__buckets": "4"},
    ],
)
def test_options_that_contradict_the_table_are_refused(tmp_path, options):
    base = written(tmp_path / "t", row("a"))
    with (
        client(base, **(OPTIONS | options)) as c,
        pytest.raises(ConfigError, match="the table has"),
    ):
        c.upsert(table(row("b")))


def forgotten(base):
    """Make a table one of Hudi's, which stores nothing of its index."""
    path = base / ".hoodie" / "hoodie.properties"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if ".index." not in line))
    return base


@pytest.mark.parametrize("kind", ["SIMPLE", "GLOBAL_BLOOM"])
def test_another_index_does_not_write_among_the_buckets_of_hudis_table(tmp_path, kind):
    base = forgotten(written(tmp_path / "t", *map(row, KEYS)))
    before = reader.timeline_names(base)
    refusal = pytest.raises(UnsupportedTableError, match="'eu' are those of a bucket index")
    with client(base, index__type=kind) as c, refusal:
        c.upsert(table(row("b")))
    written(base, row("k0", ts=2))
    assert names(base)["k0"] == "k0@2"
    assert set(before) <= set(reader.timeline_names(base))


def test_fewer_buckets_than_there_are_files_are_refused(tmp_path):
    base = forgotten(written(tmp_path / "t", *map(row, KEYS)))
    match = "has bucket 2, but hoodie.bucket.index.num.buckets is 2"
    with pytest.raises(UnsupportedTableError, match=match):
        written(base, row("b"), bucket__index__num__buckets="2")


def test_a_table_without_buckets_is_refused(tmp_path):
    base = tmp_path / "t"
    with client(base) as c:
        c.upsert(table(row("a")))
    with pytest.raises(UnsupportedTableError, match=NO_BUCKET):
        written(base, row("a"))


@pytest.mark.parametrize(
    "operation", ["upsert", "bulk_insert", "insert_overwrite", "insert_overwrite_table"]
)
def test_a_table_without_buckets_is_refused_before_its_first_new_partition(tmp_path, operation):
    """None of the files that the write would look at is there yet."""
    base, new = tmp_path / "t", row("b", "us")
    with client(base) as c:
        c.upsert(table(row("a")))
        c.delete(table(row("gone")))  # a commit without files
    refused(base, UnsupportedTableError, NO_BUCKET, table(new), operation, **OPTIONS)


def test_a_table_of_buckets_is_refused_with_fewer_before_its_first_new_partition(tmp_path):
    last = next(key for key in KEYS if bucket(key) == 2)
    base = forgotten(written(tmp_path / "t", row(last)))
    few = {**OPTIONS, "bucket__index__num__buckets": "2"}
    match = "has bucket 2, but hoodie.bucket.index.num.buckets is 2"
    refused(base, UnsupportedTableError, match, table(row("b", "us")), **few)


def test_keys_of_several_columns_are_hashed_by_the_chosen_ones(tmp_path):
    options = {
        "datasource__write__recordkey__field": "id,name",
        "bucket__index__hash__field": "name",
    }
    rows = [row(key, name=f"n{number % 2}") for number, key in enumerate(KEYS)]
    base = written(tmp_path / "t", *rows, **options)
    assert groups(base) == sorted({("eu", bucket(f"n{number}")) for number in range(2)})


def test_two_writers_that_open_one_bucket_conflict(tmp_path):
    """Their file groups differ, but a bucket has one."""
    base = written(tmp_path / "t", row("a", "us"))

    def meanwhile(kind, path):
        if kind == "create" and path.endswith(".inflight") and not done:
            done.append(path)
            written(base, row("a", name="theirs"), **lock)

    lock, done = {"write__lock__provider": LOCK}, []
    storage = HookedStorage(base, before=meanwhile)
    with pytest.raises(WriteConflictError, match=r"file group 0000000\d-"):
        written(base, row("a", name="ours"), storage=storage, **lock)
    assert {each["region"]: each["name"] for each in reader.rows(base)}["eu"] == "theirs"
    assert len(groups(base)) == 2


def test_numbers_of_buckets_are_found_for_all_rows_at_once():
    numbers = BucketNumbers({("a", 2): 0, ("b", 0): 1, ("a", 0): 2}, 3)
    paths = pa.array(["a", "a", "b", "b", "c", "a"])
    buckets = pa.array([0, 2, 0, 2, 0, 1], pa.int32()).to_numpy()
    assert numbers.of(paths, buckets).tolist() == [2, 0, 1, -1, -1, -1]
    nothing = BucketNumbers({}, 3)
    assert nothing.of(paths, buckets).tolist() == [-1] * 6


def test_properties_of_another_writer_may_lack_the_fields(tmp_path):
    base = forgotten(written(tmp_path / "t", row("a")))
    change_properties(base, index__type="BUCKET", bucket__index__num__buckets="3")
    with client(base) as c:
        c.upsert(table(*map(row, KEYS)))
    assert groups(base) == [("eu", 0), ("eu", 1), ("eu", 2)]
