"""Logs with partial updates: against a model that merges one record after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.read.logs.block_order import PlacedBlock
from strandline.read.logs.log_records import LogRules
from strandline.read.logs.log_rows import LogRows, StoredGroup
from strandline.read.logs.temp_file import BUDGET_BYTES, LogBudget
from strandline.read.scan import Scan
from strandline.records.meta_fields import META_FIELDS, RECORD_KEY
from strandline.records.schema.avro_schema import arrow_to_avro, avro_with_meta_fields
from tests.kit.formats.log_files import avro_block, delete_block
from tests.kit.short_runs import examples
from tests.strandline.read.logs.log_table import LogTable, based, block_of, read, row
from timeline.encoding.log_block import scan_blocks
from timeline.errors import UnsupportedTableError

COLUMNS = pa.schema([(RECORD_KEY, pa.string()), ("ts", pa.int64()), ("v", pa.string())]).append(
    pa.field("tags", pa.list_(pa.string()))
)
OPTIONAL = ("v", "tags")
BASE = [
    {RECORD_KEY: key, "ts": ts, "v": "base", "tags": ["base"]}
    for key, ts in zip("abc", (0, 2, 4), strict=True)
]


def schema_of(names):
    kept = [column for column in COLUMNS if column.name in names and column.name != RECORD_KEY]
    return avro_with_meta_fields(arrow_to_avro(pa.schema(kept), "t"))


@dataclass(frozen=True)
class Block:
    """A block of rows with some columns, or of deletes: pairs of key and time."""

    names: frozenset[str] = frozenset()
    rows: tuple[dict, ...] = ()
    deletes: tuple[tuple[str, int | None], ...] = ()
    is_partial: bool = False

    def encoded(self):
        if self.deletes:
            pairs = [(k, None if t is None else ("Long", t)) for k, t in self.deletes]
            return delete_block("1", pairs)
        flag = {"_7": "true"} if self.is_partial else {}
        meta = dict.fromkeys(META_FIELDS)
        rows = [meta | {name: one[name] for name in self.names} for one in self.rows]
        return avro_block("1", schema_of(self.names), rows, **flag)


@dataclass
class Record:
    """What is known of a key: its columns, of which a delete has none."""

    ts: int | None
    values: dict = field(default_factory=dict)
    is_delete: bool = False

    @property
    def is_unordered(self):
        return self.is_delete and self.ts is None


@dataclass
class Model:
    """Hudi's rules applied to one record after the other."""

    event_time: bool
    is_partial: bool = False
    found: dict[str, Record] = field(default_factory=dict)

    def wins(self, new, old):
        if not self.event_time or new.is_unordered or old.is_unordered:
            return True
        return new.ts >= old.ts

    def merge(self, new, old):
        upper, lower = (new, old) if self.wins(new, old) else (old, new)
        if upper.is_delete or lower.is_delete or not self.is_partial:
            return upper
        return Record(upper.ts, lower.values | upper.values)

    def add(self, block):
        self.is_partial |= block.is_partial
        for one in block.rows:
            key = one[RECORD_KEY]
            new = Record(one["ts"], {name: one[name] for name in block.names})
            old = self.found.get(key)
            self.found[key] = new if old is None else self.merge(new, old)
        for key, ts in block.deletes:
            new, old = Record(ts, is_delete=True), self.found.get(key)
            if old is None or (not (old.is_unordered and self.event_time) and self.wins(new, old)):
                self.found[key] = new

    def rows(self):
        left = dict(self.found)
        for stored in BASE:
            base = Record(stored["ts"], stored)
            new = left.get(stored[RECORD_KEY])
            left[stored[RECORD_KEY]] = base if new is None else self.merge(new, base)
        empty = dict.fromkeys(COLUMNS.names)
        return {key: empty | one.values for key, one in left.items() if not one.is_delete}


KEYS = st.sampled_from("abcde")
ROWS = st.fixed_dictionaries(
    {
        RECORD_KEY: KEYS,
        "ts": st.integers(0, 5),
        "v": st.none() | st.sampled_from("xyz"),
        "tags": st.none() | st.lists(st.sampled_from("pq"), max_size=2),
    }
)
FULL = st.builds(
    Block, st.just(frozenset(COLUMNS.names)), st.lists(ROWS, min_size=1, max_size=4).map(tuple)
)
PARTIAL = st.builds(
    Block,
    st.sets(st.sampled_from(OPTIONAL)).map(lambda own: frozenset({RECORD_KEY, "ts", *own})),
    st.lists(ROWS, min_size=1, max_size=4).map(tuple),
    is_partial=st.just(True),
)
DELETES = st.builds(
    Block,
    deletes=st.lists(st.tuples(KEYS, st.none() | st.integers(0, 5)), min_size=1, max_size=3).map(
        tuple
    ),
)


def merged(data, rules):
    base = pa.Table.from_pylist(BASE, COLUMNS)
    placed = [PlacedBlock(block, "a log") for block in scan_blocks(data)]
    pieces = [base.slice(at, 2) for at in range(0, base.num_rows, 2)]
    groups = [StoredGroup(base.column(RECORD_KEY), pieces)]
    names = rules.schema.names
    return pa.concat_tables(LogRows.of(placed, rules).merge(groups, rules, names)).to_pylist()


@settings(max_examples=examples(250))
@given(
    st.lists(FULL | PARTIAL | DELETES, max_size=3),
    PARTIAL,
    st.lists(FULL | PARTIAL | DELETES, max_size=3),
    st.booleans(),
    st.sampled_from([0, 300, BUDGET_BYTES]),
)
def test_the_merge_is_that_of_a_model(before, partial, after, event_time, budget):
    model, blocks = Model(event_time), [*before, partial, *after]
    for block in blocks:
        model.add(block)
    rules = LogRules(COLUMNS, ("ts",) if event_time else ())
    data = b"".join(block.encoded() for block in blocks)
    found = merged(data, rules)
    assert {one[RECORD_KEY]: one for one in found} == model.rows()
    assert len(found) == len(model.rows())
    assert merged(data, replace(rules, budget=LogBudget(budget))) == found


def test_a_key_with_many_partial_updates():
    names = [frozenset({RECORD_KEY, "ts", own}) for own in OPTIONAL]
    one = {RECORD_KEY: "a", "tags": ["t"]}
    blocks = [
        Block(names[at % 2], ({**one, "ts": at, "v": str(at)},), is_partial=True)
        for at in range(200)
    ]
    data = b"".join(block.encoded() for block in blocks)
    (found,) = [r for r in merged(data, LogRules(COLUMNS, ("ts",))) if r[RECORD_KEY] == "a"]
    assert found == {RECORD_KEY: "a", "ts": 199, "v": "198", "tags": ["t"]}


def partial_schema(*names):
    kept = pa.schema([(name, pa.int64() if name == "ts" else pa.string()) for name in names])
    return avro_with_meta_fields(arrow_to_avro(kept, "t"))


@pytest.mark.parametrize("version", [8, 9])
def test_a_scan_merges_partial_updates(version):
    table = based(version)
    changed = partial_schema("id", "ts", "v")
    table.log(lambda time: avro_block(time, changed, [row("a", 2, "new")], _7="true"))
    table.log(lambda time: avro_block(time, partial_schema("id", "ts"), [row("b", 3)], _7="true"))
    table.log(lambda time: block_of(time, row("c", 4, "whole")) + delete_block(time, [("b", None)]))
    found = {one["id"]: one for one in Scan.of(table.meta).to_arrow().to_pylist()}
    assert {key: (one["ts"], one["v"], one["p"]) for key, one in found.items()} == {
        "a": (2, "new", "p"),
        "c": (4, "whole", "p"),
    }
    assert Scan.of(table.meta, columns=["v"]).to_arrow()["v"].to_pylist() == ["new", "whole"]
    assert Scan.of(table.meta).count() == 2


def test_of_columns_that_are_not_read_nothing_is_known():
    table = based()
    table.log(lambda time: avro_block(time, partial_schema("id", "ts"), [row("a", 2)], _7="true"))
    rows, _ = read(table.storage, columns=["p", "v"])
    assert rows.to_pylist() == [{"p": "p", "v": "base"}] * 3


def test_columns_that_allow_no_nulls():
    strict = pa.schema([pa.field("id", pa.string(), nullable=False), ("ts", pa.int64())])
    strict = strict.append(pa.field("v", pa.string(), nullable=False))
    table = LogTable(schema=strict)
    table.base([row("a", 1, "base")], strict)
    table.log(lambda time: avro_block(time, partial_schema("id", "ts"), [row("a", 2)], _7="true"))
    (found,) = Scan.of(table.meta, columns=["ts", "v"]).to_arrow().to_pylist()
    assert found == {"ts": 2, "v": "base"}


def test_partial_updates_without_the_ordering_column_are_refused():
    table = based()
    log = table.log(
        lambda time: avro_block(time, partial_schema("id", "v"), [row("a", 2)], _7="true")
    )
    with pytest.raises(UnsupportedTableError, match="without the ordering column 'ts'") as error:
        read(table.storage)
    assert log.path in str(error.value)
