"""What options and a table's properties say about the index."""

import pytest

from strandline.write.options.client_options import parse_options
from strandline.write.options.index_settings import IndexOptions
from timeline.errors import ConfigError, UnsupportedTableError
from timeline.table.config import TableConfig


def config(**properties):
    made = TableConfig.create(
        name="t", version=9, record_key_fields=("a", "b"), partition_fields=("p",)
    )
    return made.with_properties(
        {f"hoodie.{n.replace('__', '.')}": v for n, v in properties.items()}
    )


def options(table=None, **given):
    named = {f"hoodie.{name.replace('__', '.')}": value for name, value in given.items()}
    return IndexOptions.of(parse_options(named), config() if table is None else table)


BUCKETED = {"index__type": "BUCKET", "bucket__index__num__buckets": "7"}


def test_the_defaults_are_hudis():
    found = options()
    assert found == IndexOptions("SIMPLE", True, True, 256, ("a", "b"))
    assert found.properties == {}


def test_types_of_indexes_are_read_in_any_case(subtests):
    for kind in ["SIMPLE", "global_simple", "Bloom", "GLOBAL_BLOOM", "BUCKET"]:
        with subtests.test(kind=kind):
            assert options(index__type=kind).type == kind.upper()


def test_other_indexes_of_hudis_are_refused_by_name(subtests):
    for kind in ["INMEMORY", "RECORD_INDEX", "RECORD_LEVEL_INDEX", "FLINK_STATE"]:
        with (
            subtests.test(kind=kind),
            pytest.raises(ConfigError, match=f"'{kind}'; allowed: SIMPLE, GLOBAL_SIMPLE, BLOOM"),
        ):
            options(index__type=kind)


def test_each_global_index_has_its_own_option_for_moves():
    given = {"simple__index__update__partition__path": "false"}
    assert not options(index__type="GLOBAL_SIMPLE", **given).moves_rows
    assert options(index__type="GLOBAL_BLOOM", **given).moves_rows
    given = {"bloom__index__update__partition__path": "false"}
    assert options(index__type="GLOBAL_SIMPLE", **given).moves_rows
    assert not options(index__type="GLOBAL_BLOOM", **given).moves_rows


def test_rows_of_an_unpartitioned_table_move_nowhere():
    table = TableConfig.create(name="t", version=9, record_key_fields=("a",))
    assert not options(table, index__type="GLOBAL_SIMPLE").moves_rows


def test_a_bucket_index_is_stored_in_the_table_and_then_known():
    given = {**BUCKETED, "bucket__index__hash__field": " b "}
    made = options(**given)
    assert (made.buckets, made.hash_fields) == (7, ("b",))
    table = config().with_properties(made.properties)
    assert options(table) == made
    assert options(table, **given) == made
    assert made.properties["hoodie.index.bucket.engine"] == "SIMPLE"


@pytest.mark.parametrize(
    "given",
    [
        {"index__type": "SIMPLE"},
        {"bucket__index__num__buckets": "8"},
        {"bucket__index__hash__field": "a"},
    ],
)
def test_options_that_contradict_the_stored_index_are_refused(given):
    table = config(**BUCKETED, bucket__index__hash__field="a,b")
    (name, value) = next(iter(given.items()))
    match = f"{name.replace('__', '.')} is '{value}', but the table has"
    with pytest.raises(ConfigError, match=match):
        options(table, **given)
    options(table, bucket__index__hash__field="b, a")


@pytest.mark.parametrize("empty", ["", " ", ","])
def test_empty_hash_fields_are_those_of_the_table(empty):
    given = {**BUCKETED, "bucket__index__hash__field": empty}
    made = options(**given)
    assert made.hash_fields == ("a", "b")
    assert options(config().with_properties(made.properties), **given) == made
    table = config(**BUCKETED, bucket__index__hash__field="b")
    assert options(table, **given).hash_fields == ("b",)


def test_stored_hash_fields_that_are_empty_are_the_columns_of_the_key():
    table = config(**BUCKETED, bucket__index__hash__field="")
    assert options(table, bucket__index__hash__field="a,b").hash_fields == ("a", "b")
    with pytest.raises(ConfigError, match="field is 'b', but the table has 'a,b'"):
        options(table, bucket__index__hash__field="b")


def test_what_a_table_lacks_comes_from_the_options():
    table = config(index__type="bucket")
    assert options(table).buckets == 256
    assert options(table, bucket__index__num__buckets="3").buckets == 3


def test_other_indexes_are_no_part_of_a_table(subtests):
    """Hudi takes the property for a default; each write may have another index."""
    for stored in ["SIMPLE", "BLOOM", "RECORD_INDEX", "whatever"]:
        with subtests.test(stored=stored):
            assert options(config(index__type=stored), index__type="BLOOM").type == "BLOOM"


def test_hash_fields_are_key_columns():
    with pytest.raises(ConfigError, match="is 'c'; allowed: columns of the record key, a, b"):
        options(**BUCKETED, bucket__index__hash__field="c")


def test_numbers_of_buckets_have_at_most_eight_digits(subtests):
    for value in ["0", "-1", "100000000", "many"]:
        with (
            subtests.test(value=value),
            pytest.raises(ConfigError, match=f"'{value}'; allowed: integer, 1 to 99999999"),
        ):
            options(index__type="BUCKET", bucket__index__num__buckets=value)


def test_consistent_hashing_is_refused_by_name():
    with pytest.raises(ConfigError, match="'CONSISTENT_HASHING'; allowed: SIMPLE"):
        options(index__type="BUCKET", index__bucket__engine="CONSISTENT_HASHING")
    table = config(**BUCKETED, index__bucket__engine="CONSISTENT_HASHING")
    with pytest.raises(UnsupportedTableError, match="CONSISTENT_HASHING"):
        options(table)


def test_partitions_with_their_own_numbers_of_buckets_are_refused():
    with pytest.raises(ConfigError, match="all partitions have the same number of buckets"):
        options(**BUCKETED, bucket__index__partition__expressions="2024.*,8")
