"""What every engine does with rows: inherit ``EngineSuite`` and define the fixture ``engine``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pytest

from strandline.records.key.text import key_hashes
from strandline.write.engine.base import Count, RunningCount, TaskAttempt

KEYED = pa.schema([("part", pa.int32()), ("path", pa.string()), ("key", pa.string())])
NESTED = pa.schema(
    [
        *KEYED,
        ("tags", pa.map_(pa.string(), pa.list_(pa.struct([("n", pa.int64())])))),
        ("n", pa.int64()),
    ]
)
FOUND = pa.schema([("path", pa.string()), ("key", pa.string()), ("file", pa.int32())])
SEEN = pa.schema([("seen_in", pa.int32()), ("position", pa.int64()), *KEYED])


LARGEST = pa.schema([("rows", pa.int64()), ("largest", pa.int64())])


class LargestNumber(Count):
    """Counts the rows of a part, and finds the largest ``n``."""

    def begin(self):
        return RunningLargest()


class RunningLargest(RunningCount):
    """What ``LargestNumber`` has found so far."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def add(self, batch):
        self._numbers += batch.column("n").to_pylist()

    def finish(self):
        if self._numbers:
            found = [[len(self._numbers)], [max(self._numbers)]]
            yield pa.record_batch([pa.array(each, pa.int64()) for each in found], schema=LARGEST)


def rows(count: int, parts: int = 1, schema: pa.Schema = NESTED) -> pa.Table:
    """Rows of which each key is there twice, far from each other."""
    made = [
        {
            "part": (number * 7) % parts,
            "path": f"p{number % 3}",
            "key": f"k{number % (count // 2 or 1)}",
            "tags": [(f"t{number}", [{"n": number}])],
            "n": number,
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(made, schema=schema)


@dataclass(frozen=True)
class Seen:
    """Yields for each row the part that it is in, and its position there."""

    attempt: Callable[[], TaskAttempt]

    def __call__(self, batches):
        part, position = self.attempt().partition, 0
        for batch in batches:
            count = batch.num_rows
            given = {name: batch.column(name) for name in KEYED.names}
            given["seen_in"] = pa.array([part] * count, pa.int32())
            given["position"] = pa.array(range(position, position + count))
            position += count
            yield pa.RecordBatch.from_arrays([given[name] for name in SEEN.names], schema=SEEN)


@dataclass(frozen=True)
class Counting:
    """Counts its rows in a tally."""

    tally: object

    def __call__(self, batches):
        for batch in batches:
            self.tally.add({("row", "seen"): batch.num_rows})
            yield batch


PLACED = pa.schema(
    [
        ("seen_in", pa.int32()),
        ("position", pa.int64()),
        ("path", pa.string()),
        ("n", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Placed:
    """Adds to each row its part and its position there."""

    attempt: Callable[[], TaskAttempt]

    def __call__(self, batches):
        position = 0
        for batch in batches:
            rows = batch.select(["path", "n"]).to_pylist()
            for row in rows:
                row |= {"seen_in": self.attempt().partition, "position": position}
                position += 1
            yield pa.RecordBatch.from_pylist(rows, schema=PLACED)


class EngineSuite:
    """The contract of ``EngineContext``."""

    def seen(self, engine, data) -> list[dict]:
        return engine.collect(engine.transform(data, Seen(engine.attempt), SEEN)).to_pylist()

    def given(self, engine, table: pa.Table, parts: int = 2):
        step = -(-table.num_rows // parts)
        return engine.from_driver([table.slice(at * step, step) for at in range(parts)])

    def test_rows_of_the_driver_come_in_the_parts_that_it_made(self, engine):
        tables = [rows(3).slice(0, 1), rows(3).slice(1, 0), rows(3).slice(1, 2)]
        data = engine.from_driver(tables)
        assert engine.schema(data).names == NESTED.names
        assert Counter(each["seen_in"] for each in self.seen(engine, data)) == {0: 1, 2: 2}
        found = engine.collect(data).sort_by("n").to_pylist()
        assert found == rows(3).to_pylist()

    @pytest.mark.parametrize("parts", [1, 2, 3, 7, 40])
    def test_a_row_goes_to_the_part_that_it_names(self, engine, parts):
        data = engine.shuffle(self.given(engine, rows(90, parts)), "part", parts)
        found = self.seen(engine, data)
        assert len(found) == 90
        assert all(each["seen_in"] == each["part"] for each in found)

    def test_all_rows_may_go_to_one_part_of_many(self, engine):
        """A skewed part isn't split, and empty ones aren't merged."""
        data = engine.shuffle(self.given(engine, rows(90, 1)), "part", 30)
        assert {each["seen_in"] for each in self.seen(engine, data)} == {0}

    def test_the_rows_of_a_part_are_sorted(self, engine):
        data = engine.shuffle(self.given(engine, rows(90, 3)), "part", 3, ("path", "key"))
        found = sorted(self.seen(engine, data), key=lambda each: (each["part"], each["position"]))
        keys = [(each["part"], each["path"], each["key"]) for each in found]
        assert keys == sorted(keys)

    @pytest.mark.parametrize("parts", [1, 4])
    def test_equal_rows_are_adjacent_in_one_part(self, engine, parts):
        data = engine.group(self.given(engine, rows(60)), ("path", "key"), parts)
        assert len(self.seen(engine, data)) == 60
        self.check_adjacent(self.seen(engine, data), parts)

    def check_adjacent(self, found: list[dict], parts: int):
        places: dict[tuple, set] = {}
        for each in found:
            assert each["seen_in"] < parts
            place = (each["seen_in"], each["position"])
            places.setdefault((each["path"], each["key"]), set()).add(place)
        for where in places.values():
            positions = [position for _, position in where]
            assert len({part for part, _ in where}) == 1
            assert max(positions) - min(positions) == len(where) - 1

    @pytest.mark.parametrize("parts", [1, 3])
    def test_a_join_adds_what_is_found_of_each_key(self, engine, parts):
        table = rows(24)
        found = [("p0", "k0", 4), ("p1", "k1", 5), ("p1", "k1", 6), ("p2", "k1", 7), ("x", "k3", 8)]
        stored = pa.Table.from_pylist(
            [dict(zip(FOUND.names, each, strict=True)) for each in found], schema=FOUND
        )
        data = engine.join(
            self.given(engine, table), self.given(engine, stored), ("path", "key"), parts
        )
        joined = engine.collect(data).to_pylist()
        numbers: dict[tuple, list] = {}
        for path, key, number in found:
            numbers.setdefault((path, key), []).append(number)
        wanted = [
            {**row, "file": number}
            for row in table.to_pylist()
            for number in numbers.get((row["path"], row["key"]), [None])
        ]
        by = [(each["n"], each["file"] or 0) for each in joined]
        assert [each for _, each in sorted(zip(by, joined, strict=True), key=lambda e: e[0])] == (
            wanted
        )
        self.check_adjacent(self.seen(engine, data), parts)

    def test_the_parts_of_joined_rows_keep_their_numbers(self, engine):
        """A row's number, by which the last of equal rows is found, begins with its part's."""
        given = engine.transform(self.given(engine, rows(90), 3), Seen(engine.attempt), SEEN)
        stored = self.given(engine, FOUND.empty_table(), 1)
        joined = engine.collect(engine.join(given, stored, ("key",), 2))
        assert set(joined["seen_in"].to_pylist()) == {0, 1, 2}

    def test_a_join_on_one_column_ignores_the_other(self, engine):
        stored = pa.table({"key": ["k1"], "file": pa.array([9], pa.int32())})
        data = engine.join(self.given(engine, rows(6)), self.given(engine, stored, 1), ("key",), 2)
        found = Counter((each["key"], each["file"]) for each in engine.collect(data).to_pylist())
        assert found == {("k0", None): 2, ("k1", 9): 2, ("k2", None): 2}

    @pytest.mark.parametrize("side", ["rows", "found", "both"])
    def test_a_join_with_nothing(self, engine, side):
        table = rows(4 if side == "found" else 0)
        stored = FOUND.empty_table()
        if side == "rows":
            stored = pa.table({"path": ["p0"], "key": ["k0"], "file": [1]}, schema=FOUND)
        data = engine.join(
            self.given(engine, table, 1), self.given(engine, stored, 1), ("path", "key"), 3
        )
        joined = engine.collect(data)
        assert sorted(joined["n"].to_pylist()) == sorted(table["n"].to_pylist())
        assert joined["file"].null_count == len(joined)

    def test_a_join_is_shuffled_without_losing_rows(self, engine):
        """As in a write: what is joined is kept, counted and shuffled."""
        stored = pa.table({"key": ["k1"], "file": pa.array([9], pa.int32())})
        joined = engine.join(
            self.given(engine, rows(60, 5)), self.given(engine, stored, 1), ("key",), 3
        )
        with engine.persist(joined) as kept:
            assert len(self.seen(engine, kept)) == 60
            found = self.seen(engine, engine.shuffle(kept, "part", 5, ("key",)))
        assert len(found) == 60
        assert all(each["seen_in"] == each["part"] for each in found)

    def test_rows_are_kept_and_counted(self, engine):
        """The rows that are kept have no counts among them, and may be moved."""
        given = self.given(engine, rows(60, 5))
        with engine.persist_counted(given, LargestNumber(), LARGEST) as (kept, counts):
            assert counts.schema.equals(LARGEST)
            assert max(counts["largest"].to_pylist()) == 59
            assert sum(counts["rows"].to_pylist()) == 60
            assert engine.collect(kept).num_rows == 60
            found = self.seen(engine, engine.shuffle(kept, "part", 5, ("key",)))
        assert len(found) == 60

    def test_rows_are_kept_in_place_of_those_that_they_are_made_of(self, engine):
        with engine.persist(self.given(engine, rows(60, 5))) as given:
            moved = engine.shuffle(given, "part", 5, ("key",))
            counted = engine.persist_counted(moved, LargestNumber(), LARGEST, None, given)
            with counted as (kept, counts):
                assert sum(counts["rows"].to_pylist()) == 60
                found = self.seen(engine, kept)
                # They can be used again, though that may cost more.
                assert len(self.seen(engine, given)) == 60
        assert len(found) == 60
        assert all(each["seen_in"] == each["part"] for each in found)

    @pytest.mark.parametrize("values", [1, 5, 200])
    @pytest.mark.parametrize("kept_by", [None, "path", "key"])
    def test_equal_rows_of_a_part_come_together_there(self, engine, values, kept_by):
        """In the order of the values' hashes, with more values, too, than rows are divided by."""
        table = pa.table(
            {"path": [f"p{number % values}" for number in range(900)], "key": ["k"] * 900}
        )
        table = table.append_column("n", pa.array(range(900), pa.int64()))
        given = self.given(engine, table, 3)
        with engine.persist_counted(given, LargestNumber(), LARGEST, kept_by) as (kept, _):
            together = engine.together(kept, "path")
            placed = engine.transform(together, Placed(engine.attempt), PLACED)
            found = engine.collect(placed).to_pylist()
        assert sorted(each["n"] for each in found) == list(range(900))
        assert all(each["seen_in"] == each["n"] // 300 for each in found)
        found.sort(key=lambda each: (each["seen_in"], each["position"]))
        for _, part in groupby(found, key=itemgetter("seen_in")):
            paths = [path for path, _ in groupby(part, key=itemgetter("path"))]
            assert len(paths) == len(set(paths)) == values
            hashes = key_hashes(pa.array(paths)).to_pylist()
            assert hashes == sorted(hashes)

    def test_nothing_comes_together_as_nothing(self, engine):
        given = self.given(engine, rows(0), 1)
        assert engine.collect(engine.together(given, "path")).num_rows == 0

    def test_tasks_count_for_the_driver(self, engine):
        tally = engine.tally()
        assert tally.total == {}
        table = rows(5, schema=NESTED)
        engine.collect(engine.transform(self.given(engine, table), Counting(tally), NESTED))
        assert tally.total == {("row", "seen"): 5}

    def test_an_engine_has_cores(self, engine):
        assert engine.cores >= 1
