"""The merge of logs with a base file: against a model, row by row, and Hudi's recorded answers."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.log_records import LogRules
from strandline.read.logs.log_rows import LogRows, StoredGroup
from strandline.read.logs.temp_file import BUDGET_BYTES, LogBudget
from strandline.records.meta_fields import IS_DELETED, RECORD_KEY, with_meta_fields
from tests.kit.answers import merge_cases
from tests.kit.answers.merge_cases import FAILS, GONE, HARD, STORED
from tests.kit.formats.log_files import delete_block, parquet_block
from tests.kit.short_runs import examples
from tests.strandline.read.logs.log_table import SCHEMA, row
from timeline.encoding.log_block import scan_blocks

COLUMNS = with_meta_fields(SCHEMA)
BASE = [row(key, ts, "base") for key, ts in zip("abcd", (0, 3, None, 5), strict=True)]


def placed(data):
    return [PlacedBlock(block, "a log") for block in scan_blocks(data)]


def merged(base, data, rules, piece=2):
    """Merge the blocks of a log with a base file's rows, in pieces."""
    found = LogRows.of(placed(data), rules)
    pieces = [base.slice(at, piece) for at in range(0, base.num_rows, piece)]
    groups = [StoredGroup(base.column(RECORD_KEY), pieces)]
    return pa.concat_tables(found.merge(groups, rules, rules.schema.names))


def rank(ts):
    return -(2**63) if ts is None else ts


class Model:
    """Hudi's rules applied to one record after the other."""

    def __init__(self, event_time):
        self.event_time = event_time
        self.newest = {}

    def wins(self, newer, older):
        if not self.event_time or "unordered" in (newer[0], older[0]):
            return True
        return rank(newer[1]["ts"]) >= rank(older[1]["ts"])

    def add(self, record):
        key = record["id"]
        # A flagged row without a value has no order; the column isn't a 32-bit integer.
        unordered = record[IS_DELETED] and (record["ts"] is None or not self.event_time)
        state = ("unordered" if unordered else "ordered", record)
        if key not in self.newest or self.wins(state, self.newest[key]):
            self.newest[key] = state

    def delete(self, key, ts):
        before = self.newest.get(key)
        state = ("unordered" if ts is None else "ordered", row(key, ts, deleted=True))
        if before is not None and before[0] == "unordered" and self.event_time:
            return
        if before is None or self.wins(state, before):
            self.newest[key] = state

    def rows(self, base):
        found = []
        for stored in base:
            state = self.newest.pop(stored["id"], None)
            if state is None or not self.wins(state, ("ordered", stored)):
                found.append(stored)
            elif not state[1][IS_DELETED]:
                found.append(state[1])
        return found + [one for _, one in self.newest.values() if not one[IS_DELETED]]


KEYS = st.sampled_from("abcdef")
TIMES = st.none() | st.integers(0, 6)
DATA = st.lists(
    st.builds(row, KEYS, TIMES, st.sampled_from("xyz"), deleted=st.sampled_from([None, True])),
    min_size=1,
    max_size=4,
)
DELETES = st.lists(st.tuples(KEYS, TIMES), min_size=1, max_size=4).map(tuple)


@settings(max_examples=examples(250))
@given(
    st.lists(DATA | DELETES, max_size=6),
    st.booleans(),
    st.integers(1, 4),
    st.sampled_from([0, 40, 300, BUDGET_BYTES]),
)
def test_the_merge_is_that_of_a_model(blocks, event_time, piece, budget):
    model, data = Model(event_time), b""
    for block in blocks:
        if isinstance(block, tuple):
            data += delete_block("1", [(k, None if t is None else ("Long", t)) for k, t in block])
            for key, ts in block:
                model.delete(key, ts)
        else:
            data += parquet_block("1", pa.Table.from_pylist(block, COLUMNS))
            for one in block:
                model.add(one)
    rules = LogRules(COLUMNS, ("ts",) if event_time else ())
    base = pa.Table.from_pylist(BASE, COLUMNS)
    found = merged(base, data, rules, piece).to_pylist()
    bounded = replace(rules, budget=LogBudget(budget))
    assert merged(base, data, bounded, piece).to_pylist() == found
    expected = model.rows(BASE)
    assert len(found) == len(expected)
    stored = [one["id"] for one in found if one["id"] in "abcd"]
    assert stored[: len(BASE)] == [one["id"] for one in expected if one["id"] in "abcd"]
    assert sorted(found, key=lambda one: one["id"]) == sorted(expected, key=lambda o: o["id"])


@pytest.mark.parametrize("mode", merge_cases.MODES)
@pytest.mark.parametrize("kind", merge_cases.KINDS)
def test_rows_of_logs_are_merged_as_hudi_merges_them(kind, mode):
    check_answers(kind, mode, merge_cases.KINDS[kind])


@pytest.mark.parametrize("mode", merge_cases.MODES)
def test_dates_are_ordered_as_integers_nulls_too(mode):
    check_answers("int", mode, merge_cases.DATE)


def check_answers(kind, mode, of_kind):
    """Each row of a case is in a block of its own, in the place of the rows of one write."""
    answers = merge_cases.answers(kind, mode)
    cases = [case for case in merge_cases.cases_of(kind) if answers[case.name] != FAILS]
    base = keyed(merge_cases.stored_rows(cases, of_kind))
    written = keyed(merge_cases.written_rows(cases, of_kind))
    data = b""
    for number, rows in enumerate(zip_longest(*(case.rows for case in cases))):
        hard = {
            case.name for case, one in zip(cases, rows, strict=True) if one and one.does == HARD
        }
        data += delete_block("1", [(key, ("Int", 0)) for key in sorted(hard)])
        in_turn = pc.equal(written["origin"], str(number))
        by_key = pc.is_in(written["id"], pa.array(sorted(hard), pa.string()))
        data += parquet_block("1", written.filter(pc.and_not(in_turn, by_key)))
    rules = LogRules(base.schema, of_kind.fields if mode == merge_cases.EVENT else ())
    found = merged(base, data, rules, piece=7).to_pylist()
    left = {one["id"]: one["origin"] for one in found}
    assert len(left) == len(found)
    assert {c.name: left.get(c.name, GONE) for c in cases} == {
        c.name: answers[c.name] for c in cases
    }
    assert {GONE, "0", "1"} <= set(answers.values())
    assert (STORED in answers.values()) == (mode == merge_cases.EVENT)


def keyed(rows):
    """Return rows with their record key."""
    return rows.add_column(0, RECORD_KEY, rows["id"])


def test_a_delete_by_key_after_one_without_an_ordering_value():
    """Hudi 1.2.0 keeps the earlier delete, which wins over the base file's row."""
    rules = LogRules(COLUMNS, ("ts",))
    base = pa.Table.from_pylist([row("a", 5, "base")], COLUMNS)
    late, hard = delete_block("2", [("a", ("Long", 4))]), delete_block("1", [("a", None)])
    assert merged(base, late, rules).num_rows == 1
    assert merged(base, hard + late, rules).num_rows == 0
    again = parquet_block("3", pa.Table.from_pylist([row("a", 6, "new")], COLUMNS))
    assert merged(base, hard + late + again, rules)["v"].to_pylist() == ["new"]
