"""Avro that is damaged or hostile is refused before it is decoded."""

import json
from itertools import product
from pathlib import Path

import pytest

from tests.kit.formats.avro_container import container, doubling, record_schema
from timeline.encoding import avro
from timeline.encoding import avro_binary as _avro

ROOT = Path(__file__).parents[3]
EMPTY = record_schema("Empty")
NULLS = record_schema("Nulls", flag="boolean", **{f"n{n}": "null" for n in range(100)})
UNBOUNDED = {
    "records of nothing": doubling(50),
    "under a union": record_schema("T", u=["null", doubling(50)]),
    "as items": record_schema("T", l={"type": "array", "items": doubling(50)}),
    "as items with a byte": record_schema(
        "T", l={"type": "array", "items": record_schema("I", flag="boolean", bomb=doubling(50))}
    ),
    "as values of a map": record_schema("T", m={"type": "map", "values": doubling(50)}),
    "nulls as items": record_schema("T", l={"type": "array", "items": "null"}),
    "empty records as items": record_schema("T", l={"type": "array", "items": EMPTY}),
    "nulls beside a byte": record_schema("T", l={"type": "array", "items": NULLS}),
    "fixed of no bytes": record_schema(
        "T", l={"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}
    ),
}


def test_values_that_no_bytes_account_for_are_not_decoded(subtests: pytest.Subtests) -> None:
    """2.4 kB of nested empty records stopped all answers for 13.6 s."""
    for way, name in product(["all fields", "some fields"], UNBOUNDED):
        with subtests.test(way=way, name=name):
            schema = UNBOUNDED[name]
            ones = b"\x02" * 64  # branch 1 of a union, one item of a list, true
            wanted = {str(schema["name"]): [field["name"] for field in schema["fields"]]}
            data = container(schema, ones)
            with pytest.raises(ValueError, match=r"values in \d+ bytes|items without bytes"):
                avro.read_container(data, wanted=wanted if way == "some fields" else None)
            with pytest.raises(ValueError, match=r"values in \d+ bytes|items without bytes"):
                avro.read_record(json.dumps(schema), ones)


@pytest.mark.parametrize("way", ["all fields", "some fields"])
@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "items": record_schema("I", flag="boolean")},
        {"type": "array", "items": ["null", "long"]},
        {"type": "map", "values": ["null", "long"]},
    ],
    ids=["records", "nulls", "map"],
)
def test_a_value_for_each_byte_is_too_much_of_large_data(kind: dict, way: str) -> None:
    """The package fastavro took 15 s and 2 GB for 10 MB of such records."""
    data = bytearray()
    _avro.put_long(data, 1_900_000)
    data += bytes(2_000_001)
    read = container(record_schema("T", l=kind), bytes(data))
    wanted = {"T": ["l"], "I": ["flag"]} if way == "some fields" else None
    expected = pytest.raises(ValueError, match="more than 1000002 values in 2000005 bytes")
    with expected:
        avro.read_container(read, wanted=wanted)


def test_all_records_of_hudi_are_within_the_bounds() -> None:
    names = [path.stem for path in (ROOT / "timeline" / "avsc").glob("*.avsc")]
    assert len(names) == 17
    for name in names:
        text = avro.schema_text(name)
        assert len(avro.checked_schema(text)) * 8 < _avro.SCHEMA_CHARACTERS
        assert _avro.depth_of(json.loads(text)) < _avro.DEPTH / 2, name


def test_a_chain_of_records_is_not_followed_until_the_process_dies() -> None:
    """A compiled reader has no limit of depth but the stack of its thread."""
    fields = {"f0": EMPTY}
    for n in range(1, 1500):
        inner = "Empty" if n == 1 else f"R{n - 1}"
        fields[f"f{n}"] = ["null", record_schema(f"R{n}", a=inner, n="long")]
    schema = json.dumps(record_schema("T", **fields, last="R1499"))
    data = bytes(1500 + 1500)
    with pytest.raises(ValueError, match="RecursionError"):
        avro.read_record(schema, data)


def test_a_schema_too_long_is_neither_parsed_nor_kept() -> None:
    schema = record_schema("T", **{f"n{n}": "long" for n in range(10_000)})
    for read in (
        lambda: avro.read_container(container(schema, bytes(10_000))),
        lambda: avro.read_record(json.dumps(schema), bytes(10_000)),
    ):
        with pytest.raises(
            ValueError, match=r"a schema of \d+ characters; allowed: at most 262144"
        ):
            read()


def test_a_container_of_other_than_one_record_is_refused_before_it_is_decoded(
    subtests: pytest.Subtests,
) -> None:
    """26 MB of 400 blocks, each within its bound, became 6 GB."""
    for way, blocks in product(
        ["all fields", "some fields"],
        [
            [(1, b"\xff"), (1, b"\xff")],
            [(2, b"\xff\xff")],
            [(0, b""), (1, b"\x01")],
            [(1, b"")],
            [],
        ],
    ):
        with subtests.test(way=way, blocks=blocks):
            undecodable = container(record_schema("T", n="long"), *blocks)
            wanted = {"T": ["n"]} if way == "some fields" else None
            expected = pytest.raises(ValueError, match=r"where one belongs|a record of 0 bytes")
            with expected:
                avro.read_container(undecodable, wanted=wanted)
