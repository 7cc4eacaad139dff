"""Merging and deduplicating against Hudi's rules, applied to one row after the other."""

import re
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.records.file.base_file import stored_rows
from strandline.records.merge import REMOVES, MergeCounts
from strandline.records.merge_rule import ROW_NUMBER, deduplicate
from strandline.records.meta_fields import META_FIELDS
from tests.kit.formats.base_files import merge
from tests.kit.short_runs import examples
from tests.strandline.records.merge_model import (
    NEW,
    OLD,
    ROWS,
    SCHEMA,
    UNIQUE_ROWS,
    incoming,
    merger_of,
    naive_merge,
    naive_wins,
    plain,
    row,
    rules,
    stored,
)
from timeline.errors import InputError
from timeline.storage.local import LocalStorage


@settings(max_examples=examples(300))
@given(ROWS, UNIQUE_ROWS, st.sampled_from(["event", "commit", "delete", "append"]), st.booleans())
def test_a_merge_is_the_rules_row_by_row(before, new, mode, in_pieces):
    before = [r | {"_hoodie_is_deleted": None} for r in before]
    existing = stored(before)
    how = rules(event_time=mode == "event", delete=mode == "delete", append=mode == "append")
    merger = merger_of(incoming(new), how)
    if mode != "append":
        merger.match(existing["_hoodie_record_key"])
    step = 3 if in_pieces else max(1, len(existing))
    pieces = [merger.apply(existing.slice(i, step)) for i in range(0, len(existing), step)]
    result = pa.concat_tables([*pieces, merger.finish()])
    want, counts = naive_merge(existing.to_pylist(), new, how)
    own = ("_hoodie_record_key", "_hoodie_partition_path", *SCHEMA.names)
    assert plain(result.select(own).to_pylist()) == plain(
        {name: r[name] for name in own} for _, r in want
    )
    assert result["_hoodie_commit_time"].to_pylist() == [time for time, _ in want]
    assert set(result["_hoodie_file_name"].to_pylist()) <= {"new.parquet"}
    assert merger.counts == counts
    stamps = list(
        zip(
            result["_hoodie_commit_time"].to_pylist(),
            result["_hoodie_commit_seqno"].to_pylist(),
            strict=True,
        )
    )
    old_seqnos = set(existing["_hoodie_commit_seqno"].to_pylist())
    assert {seqno for time, seqno in stamps if time == OLD} <= old_seqnos
    mine = [seqno for time, seqno in stamps if time == NEW]
    assert sorted(mine) == sorted(f"{NEW}_3_{n}" for n in range(len(mine)))
    assert merger.next_seqno == len(mine)
    result.validate(full=True)


def merged(before, new, **changes):
    """Return the rows after a merge, and the counts."""
    return merge(stored(before), incoming(new), rules(**changes))


def by_key(rows):
    return {r["_hoodie_record_key"]: r for r in rows.to_pylist()}


@settings(max_examples=30, deadline=None)
@given(ROWS, UNIQUE_ROWS, st.booleans(), st.booleans())
def test_a_file_is_merged_like_its_rows(before, new, append, large):
    """In row groups of three rows, its keys as text with 32-bit or 64-bit offsets."""
    existing = stored([r | {"_hoodie_is_deleted": None} for r in before])
    how = rules(append=append)
    kind = pa.large_string() if large else pa.string()
    keys = existing["_hoodie_record_key"].cast(kind)
    with TemporaryDirectory() as folder:
        file = existing.set_column(2, "_hoodie_record_key", keys)
        pq.write_table(file, Path(folder) / "f", row_group_size=3)
        merger = merger_of(incoming(new), how, "new.parquet")
        with stored_rows(LocalStorage(folder), "f") as opened:
            result = pa.concat_tables(merger.merge(opened))
    want, counts = merge(existing, incoming(new), how)
    assert plain(result.to_pylist()) == plain(want.to_pylist())
    assert merger.counts == counts
    assert result.schema == want.schema


def test_a_late_row_leaves_the_stored_row_wholly_alone():
    table, counts = merged([row("a", 5), row("b", 5)], [row("a", 4), row("b", 5), row("c", 1)])
    assert counts == MergeCounts(inserts=1, updates=1, late=1)
    rows = by_key(table)
    late = rows["a"]
    assert (late["ts"], late["_hoodie_commit_time"]) == (5, OLD)
    assert late["_hoodie_commit_seqno"] == f"{OLD}_3_0"
    assert late["_hoodie_file_name"] == "new.parquet"
    assert rows["b"]["_hoodie_commit_time"] == rows["c"]["_hoodie_commit_time"] == NEW


def test_stored_rows_keep_their_order_and_new_ones_follow():
    table, _ = merged(
        [row("c", 1), row("a", 1), row("b", 1)], [row("z", 1), row("a", 2), row("y", 1)]
    )
    assert table["id"].to_pylist() == ["c", "a", "b", "z", "y"]
    assert table.schema.names == [*META_FIELDS, *SCHEMA.names]


def test_a_flagged_row_deletes_only_when_it_is_new_enough():
    before = [row("a", 5), row("b", 5), row("c", 5), row("d", 5)]
    flagged = [row("a", 4, deleted=True), row("b", 5, deleted=True), row("c", 0, deleted=True),
               row("d", None, deleted=True)]  # fmt: skip
    table, counts = merged(before, flagged, ordering_fields=("ts",))
    assert by_key(table).keys() == {"a", "c"}
    assert counts == MergeCounts(deletes=2, late=2)


def test_a_hard_delete_needs_only_the_key():
    keys = incoming([row("a", 1), row("x", 1)]).select(
        ["_hoodie_record_key", "_hoodie_partition_path"]
    )
    table, counts = merge(stored([row("a", 9), row("b", 9)]), keys, rules(delete=True))
    assert table["id"].to_pylist() == ["b"]
    assert counts == MergeCounts(deletes=1)


def test_deleting_all_rows_leaves_a_table_without_rows():
    table, _ = merged([row("a", 1)], [row("a", 1)], delete=True)
    assert table.num_rows == 0
    assert table.schema.names == [*META_FIELDS, *SCHEMA.names]


def test_stored_duplicates_are_all_replaced():
    table, counts = merged([row("a", 1), row("a", 2), row("b", 1)], [row("a", 3)])
    assert table["ts"].to_pylist() == [3, 3, 1]
    assert counts == MergeCounts(updates=2)


def test_sequence_numbers_begin_at_the_given_number():
    merger = merger_of(incoming([row("a", 1), row("b", 1)]), rules(), first_seqno=7)
    assert merger.finish()["_hoodie_commit_seqno"].to_pylist() == [f"{NEW}_3_7", f"{NEW}_3_8"]
    assert merger.next_seqno == 9


def test_a_new_file_has_its_constant_columns_as_dictionaries():
    rows = [row("a", 1), row("b", 1, deleted=True), row("c", 2)]
    created = merger_of(incoming(rows), rules()).created("p")
    finished = merger_of(incoming(rows), rules()).finish()
    assert created.to_pydict() == finished.to_pydict()
    assert created.schema.names == finished.schema.names
    constant = {"_hoodie_commit_time": NEW, "_hoodie_partition_path": "p",
                "_hoodie_file_name": "new.parquet"}  # fmt: skip
    for name, value in constant.items():
        assert [chunk.dictionary.to_pylist() for chunk in created[name].chunks] == [[value]]


def test_a_file_of_an_older_schema_is_brought_up():
    old = stored([row("a", 1), row("b", 1)]).drop_columns(["tags", "_hoodie_file_name"])
    narrow = old.set_column(5, "ts", old["ts"].cast(pa.int32()))
    table, _ = merge(narrow, incoming([row("a", 2)]), rules(ordering_fields=("ts",)))
    assert table["tags"].to_pylist() == [["a2", None], None]
    assert table["ts"].type == pa.int64()


def test_any_type_with_an_order_orders(subtests):
    for kind, low, high in [
        (pa.string(), "2025-01-01", "2025-01-02"),
        (pa.decimal128(10, 2), Decimal("-1.00"), Decimal("0.50")),
        (pa.timestamp("us", tz="UTC"), 1, 2),
        (pa.date32(), 1, 2),
        (pa.bool_(), False, True),
        (pa.float32(), -1.0, 0.5),
        (pa.binary(), b"a", b"b"),
    ]:
        with subtests.test(kind=kind, low=low, high=high):
            schema = pa.schema([("id", pa.string()), ("ts", kind)])
            how = rules(schema=schema, ordering_fields=("ts",))
            meta = {"_hoodie_record_key": ["a"], "_hoodie_partition_path": ["p"], "id": ["a"]}
            old, new = (pa.table(meta | {"ts": pa.array([v], kind)}) for v in (low, high))
            assert merge(merger_of(old, how).finish(), new, how)[1] == MergeCounts(updates=1)
            assert merge(merger_of(new, how).finish(), old, how)[1] == MergeCounts(late=1)
            both = pa.concat_tables([new, old])
            assert deduplicate(both, ["ts"])["ts"] == new["ts"]
            assert deduplicate(both, [])["ts"] == old["ts"]


def test_ordering_may_lie_in_a_struct():
    schema = pa.schema([("id", pa.string()), ("s", pa.struct([("at", pa.int64())]))])
    how = rules(schema=schema, ordering_fields=("s.at",))
    meta = {"_hoodie_record_key": ["a"], "_hoodie_partition_path": ["p"], "id": ["a"]}
    old, new = (pa.table(meta | {"s": [{"at": at}]}) for at in (1, 2))
    table, _ = merge(merger_of(old, how).finish(), new, how)
    assert table["s"].to_pylist() == [{"at": 2}]


def test_a_missing_ordering_column_is_named():
    with pytest.raises(InputError, match="no column 'when'"):
        merged([row("a", 1)], [row("a", 1)], ordering_fields=("when",))
    with pytest.raises(InputError, match="no column 'when'"):
        deduplicate(incoming([row("a"), row("a")]), ["when"])


def test_rows_that_do_not_fit_are_refused():
    strict = pa.schema([SCHEMA.field("id"), SCHEMA.field("ts").with_nullable(False)])
    with pytest.raises(InputError, match=re.escape("column 'ts' has 1 nulls")):
        merger_of(incoming([row("a", None)]), rules(schema=strict))


def test_a_key_twice_is_the_callers_mistake():
    twice = incoming([row("a", 1), row("a", 2)])
    with pytest.raises(ValueError, match="deduplicate them first"):
        merger_of(twice, rules())
    assert merge(stored([row("a", 0)]), twice, rules(append=True))[1] == MergeCounts(inserts=2)


@settings(max_examples=examples(300))
@given(ROWS, st.sampled_from([(), ("ts",), ("ts", "seq")]))
def test_the_row_of_each_key_that_wins_in_turn_is_kept(rows, fields):
    best = {}
    for at, r in enumerate(rows):
        old = best.get(r["_hoodie_record_key"])
        if old is None or naive_wins(r, rows[old], fields):
            best[r["_hoodie_record_key"]] = at
    kept = deduplicate(incoming(rows), fields)
    assert plain(kept.to_pylist()) == plain(rows[at] for at in sorted(best.values()))


@settings(max_examples=examples(100))
@given(ROWS, st.sampled_from([(), ("ts",), ("ts", "seq")]), st.randoms(use_true_random=False))
def test_numbered_rows_are_combined_whatever_their_order(rows, fields, rng):
    numbered = incoming(rows).append_column(
        ROW_NUMBER, pa.array([7 * n for n in range(len(rows))], pa.int64())
    )
    order = pa.array(rng.sample(range(len(rows)), len(rows)), pa.int64())
    kept = deduplicate(numbered.take(order), fields).sort_by(ROW_NUMBER)
    in_order = deduplicate(incoming(rows), fields)
    assert plain(kept.drop_columns([ROW_NUMBER]).to_pylist()) == plain(in_order.to_pylist())


def test_the_same_key_in_two_partitions_is_two_keys():
    two = [row("a", 1), row("a", 2) | {"_hoodie_partition_path": "q"}]
    assert len(deduplicate(incoming(two), ("ts",))) == 2


def test_chunks_make_no_difference():
    rows = [row("a", 1), row("b", 1), row("a", 2)]
    chunks = pa.concat_tables([incoming([r]) for r in rows])
    assert (
        deduplicate(chunks, ("ts",)).to_pylist() == deduplicate(incoming(rows), ("ts",)).to_pylist()
    )
    old = pa.concat_tables([stored([r]) for r in rows[:2]])
    table, _ = merge(
        old, pa.concat_tables([incoming([row("b", 2)]), incoming([row("c", 1)])]), rules()
    )
    assert table["tags"].to_pylist() == [["a1", None], ["b2", None], ["c1", None]]


def test_a_row_that_removes_wins_over_any_stored_row():
    """Its record moves to another partition, whatever its ordering value."""
    rows = incoming([row("a", 1, 1.0), row("b", 1, 1.0)])
    rows = rows.append_column(REMOVES, pa.array([True, False]))
    merged, counts = merge(stored([row("a", 9, 1.0), row("b", 9, 1.0)]), rows, rules())
    assert merged["_hoodie_record_key"].to_pylist() == ["b"]
    assert counts == MergeCounts(deletes=1, late=1)
