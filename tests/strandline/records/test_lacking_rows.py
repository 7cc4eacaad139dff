"""Rows that lack values: batches and stored rows against a model, one row after the other."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.records.merge import MergeCounts, Merger, MergeRules
from strandline.records.merge_rule import ROW_NUMBER, deduplicate
from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from tests.kit.lacking_rows import FILLABLE, PROPERTIES, VALUES, LackingModel
from tests.kit.short_runs import examples

OLD, NEW = "20250101000000000", "20250102000000000"
OWN = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.string()),
        ("b", pa.binary()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
KEYED = pa.schema([(RECORD_KEY, pa.string()), (PARTITION_PATH, pa.string()), *OWN])
MODES = st.sampled_from(list(PROPERTIES))


def rows(keys):
    return st.lists(
        st.builds(lambda key, values: {"id": key, **values}, st.sampled_from(keys), VALUES),
        max_size=8,
    )


def keyed(given_rows, schema=KEYED):
    made = [{RECORD_KEY: row["id"], PARTITION_PATH: "p", **row} for row in given_rows]
    return pa.Table.from_pylist(made, schema)


def plain(table):
    return {row["id"]: row for row in table.select(OWN.names).to_pylist()}


@settings(max_examples=examples(150))
@given(rows("abc"), MODES, st.booleans(), st.randoms(use_true_random=False))
def test_a_batch_is_folded_as_by_the_model(batch, mode, event_time, random):
    ordering = ["ts"] if event_time else []
    found = deduplicate(keyed(batch), ordering, properties=PROPERTIES[mode])
    assert plain(found) == LackingModel(event_time, mode).fold(batch)
    # However a shuffle delivers the rows.
    numbered = keyed(batch).append_column(ROW_NUMBER, pa.array(range(len(batch)), pa.int64()))
    order = random.sample(range(len(batch)), len(batch))
    shuffled = numbered.take(pa.array(order, pa.int64()))
    assert plain(deduplicate(shuffled, ordering, properties=PROPERTIES[mode])) == plain(found)


@settings(max_examples=examples(150))
@given(rows("abcd"), rows("abc"), MODES, st.booleans(), st.integers(1, 4))
def test_stored_rows_are_merged_as_by_the_model(stored, batch, mode, event_time, step):
    model = LackingModel(event_time, mode)
    before = {row["id"]: {**row, "_hoodie_is_deleted": False} for row in stored}
    new = model.fold(batch)
    first = MergeRules(OWN, ("ts",), event_time, OLD, append=True)
    existing = Merger(keyed(before.values()), first, "old.parquet", 3).finish()
    rules = MergeRules(OWN, ("ts",), event_time, NEW, properties=PROPERTIES[mode])
    merger = Merger(keyed(new.values()), rules, "new.parquet", 3)
    merger.match(existing[RECORD_KEY])
    pieces = [merger.apply(existing.slice(at, step)) for at in range(0, len(before), step)]
    found = pa.concat_tables([*pieces, merger.finish()])
    found.validate(full=True)
    expected = dict(before)
    for key, row in new.items():
        merged = model.merge(row, before[key]) if key in before else row
        expected[key] = merged
    left = {key: row for key, row in expected.items() if not row["_hoodie_is_deleted"]}
    assert plain(found) == left
    changed = {
        key
        for key in new.keys() & left.keys()
        if key not in before or model.changes(new[key], before[key])
    }
    stamped = found.select(["id", "_hoodie_commit_time"]).to_pylist()
    assert {one["id"] for one in stamped if one["_hoodie_commit_time"] == NEW} == changed
    deletes = len(before.keys() - left.keys())
    assert merger.counts == MergeCounts(
        inserts=len(changed - before.keys()),
        updates=len(changed & before.keys()),
        deletes=deletes,
        late=len(new.keys() & before.keys()) - len(changed & before.keys()) - deletes,
    )


def test_merged_rows_stand_where_the_rows_that_win_stood():
    values = {"b": None, "tags": None, "_hoodie_is_deleted": None}
    batch = [
        {"id": "a", "ts": 1, "v": "a1", **values},
        {"id": "b", "ts": 2, "v": None, **values},
        {"id": "c", "ts": 1, "v": "c1", **values},
        {"id": "b", "ts": 1, "v": "b1", **values},
    ]
    found = deduplicate(keyed(batch), ["ts"], properties=PROPERTIES["IGNORE_DEFAULTS"])
    assert found.select(["id", "ts", "v"]).to_pylist() == [
        {"id": "a", "ts": 1, "v": "a1"},
        {"id": "b", "ts": 2, "v": "b1"},
        {"id": "c", "ts": 1, "v": "c1"},
    ]


@pytest.mark.parametrize("mode", PROPERTIES)
def test_only_columns_of_the_table_are_filled(mode):
    schema = KEYED.append(pa.field(ROW_NUMBER, pa.int64())).append(pa.field("n", pa.int32()))
    filled = PROPERTIES[mode].fillable(schema)
    own = ("id", "ts", "v", "b", "tags", "_hoodie_is_deleted", "n")
    assert filled == (own if mode == "IGNORE_DEFAULTS" else ("id", "v", "b"))
    assert set(FILLABLE) & set(filled)
