import json
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.avro_container import container, doubling, engine, read_plainly, record_schema
from timeline.encoding import avro
from timeline.encoding import avro_binary as _avro
from timeline.encoding import avro_bounds as _avro_bounds
from timeline.encoding import avro_projection as _avro_sparse

ROOT = Path(__file__).parents[3]

ALL_TYPES = json.dumps(
    {
        "type": "record",
        "name": "All",
        "namespace": "test",
        "fields": [
            {"name": "flag", "type": "boolean"},
            {"name": "small", "type": "int"},
            {"name": "large", "type": "long"},
            {"name": "single", "type": "float"},
            {"name": "double", "type": "double"},
            {"name": "raw", "type": "bytes"},
            {"name": "text", "type": {"type": "string", "avro.java.string": "String"}},
            {"name": "maybe", "type": ["null", "string"], "default": None},
            {"name": "version", "type": ["int", "null"], "default": 1},
            {"name": "items", "type": {"type": "array", "items": "long"}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {"name": "inner", "type": ["null", "All"], "default": None},
        ],
    }
)
LONGS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
INTS = st.integers(min_value=-(2**31), max_value=2**31 - 1)
RECORDS = st.recursive(
    st.none(),
    lambda inner: st.fixed_dictionaries(
        {
            "flag": st.booleans(),
            "small": INTS,
            "large": LONGS,
            "single": st.floats(width=32, allow_nan=False),
            "double": st.floats(allow_nan=False),
            "raw": st.binary(max_size=20),
            "text": st.text(max_size=10),
            "maybe": st.none() | st.text(max_size=5),
            "version": st.none() | INTS,
            "items": st.lists(LONGS, max_size=5),
            "counts": st.dictionaries(st.text(max_size=3), INTS, max_size=3),
            "inner": inner,
        }
    ),
    max_leaves=3,
).filter(lambda record: record is not None)


@settings(max_examples=50)
@given(RECORDS)
def test_both_ways_read_what_was_written(record: dict) -> None:
    data = avro.write_record(ALL_TYPES, record)
    assert avro.read_record(ALL_TYPES, data) == record
    assert read_plainly(avro.read_record, ALL_TYPES, data) == record


CLEAN = {
    "startCleanTime": "1",
    "timeTakenInMillis": 2,
    "totalFilesDeleted": 3,
    "earliestCommitToRetain": "",
    "partitionMetadata": {},
}


OPTIONAL = json.dumps(
    {
        "type": "record",
        "name": "Optional",
        "fields": [
            {"name": "first", "type": ["null", "long"]},
            {"name": "text", "type": ["null", "string"]},
            {"name": "flag", "type": ["null", "boolean"]},
            {"name": "small", "type": ["null", "int"]},
            {"name": "large", "type": ["null", "long"]},
            {"name": "single", "type": ["null", "float"]},
            {"name": "other", "type": ["null", {"type": "string", "avro.java.string": "String"}]},
            {"name": "items", "type": ["null", {"type": "array", "items": "long"}]},
            {"name": "counts", "type": ["null", {"type": "map", "values": "int"}]},
            {
                "name": "inner",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Inner",
                        "fields": [{"name": "n", "type": ["null", "long"]}],
                    },
                ],
            },
            {"name": "last", "type": ["null", "double"]},
        ],
    }
)
OPTIONALS = st.fixed_dictionaries(
    {
        "first": st.none() | LONGS,
        "text": st.none() | st.text(max_size=100),
        "flag": st.none() | st.booleans(),
        "small": st.none() | INTS,
        "large": st.none() | LONGS,
        "single": st.none() | st.floats(width=32, allow_nan=False),
        "other": st.none() | st.text(max_size=3),
        "items": st.none() | st.lists(LONGS, max_size=3),
        "counts": st.none() | st.dictionaries(st.text(max_size=3), INTS, max_size=2),
        "inner": st.none() | st.fixed_dictionaries({"n": st.none() | LONGS}),
        "last": st.none() | st.floats(allow_nan=False),
    }
)


@given(
    OPTIONALS, st.sets(st.sampled_from([field["name"] for field in json.loads(OPTIONAL)["fields"]]))
)
def test_fields_that_are_wanted_are_those_of_the_whole(record: dict, fields: set) -> None:
    check_wanted(OPTIONAL, "Optional", record, fields)


FLAT = json.loads(ALL_TYPES) | {"name": "Flat", "fields": json.loads(ALL_TYPES)["fields"][:-1]}


@given(RECORDS, st.sets(st.sampled_from([field["name"] for field in FLAT["fields"]])))
def test_so_they_are_of_any_type(record: dict, fields: set) -> None:
    flat = {name: value for name, value in record.items() if name != "inner"}
    check_wanted(json.dumps(FLAT), "Flat", flat, fields)


@given(st.lists(OPTIONALS, min_size=1, max_size=3), st.permutations(range(9)))
def test_a_shape_that_came_before_is_read_as_it_was(records: list[dict], order: list[int]) -> None:
    fields = {"first", "text", "small", "other", "items", "inner"}
    read = _avro_sparse.reader_of(json.loads(OPTIONAL), {"Optional": fields})
    for place in (*order, *order):
        record = records[place % len(records)]
        data = avro.write_record(OPTIONAL, record)
        cursor = _avro.Cursor(b"before" + data + b"more")
        cursor.pos = len(b"before")
        assert read(cursor) == {key: value for key, value in record.items() if key in fields}
        assert cursor.pos == len(b"before") + len(data)
        short = _avro.Cursor(data[:-1])
        with pytest.raises((ValueError, IndexError)):
            read(short)


def test_texts_of_a_shape_are_read_anew() -> None:
    read = _avro_sparse.reader_of(json.loads(OPTIONAL), {"Optional": {"text", "large", "other"}})
    empty = dict.fromkeys(field["name"] for field in json.loads(OPTIONAL)["fields"])
    for text, large in (("ab", 1), ("cd", None), ("\n\x00", -(2**63)), ("é", 300), ("x" * 90, 7)):
        record = empty | {"text": text, "large": large, "last": 0.5}
        cursor = _avro.Cursor(avro.write_record(OPTIONAL, record))
        assert read(cursor) == {"text": text, "large": large, "other": None}


def test_shapes_that_come_later_are_read_fast_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    make = _avro_sparse._shape_reader

    def counted(steps: object, shape: object) -> object:
        made.append(shape)
        return make(steps, shape)

    monkeypatch.setattr(_avro_sparse, "_shape_reader", counted)
    read = _avro_sparse.reader_of(json.loads(OPTIONAL), {"Optional": {"text"}})
    empty = dict.fromkeys(field["name"] for field in json.loads(OPTIONAL)["fields"])
    for length in (*range(8), *range(8)):
        data = avro.write_record(OPTIONAL, empty | {"text": "x" * length})
        for _ in range(300):
            assert read(_avro.Cursor(data)) == {"text": "x" * length}
    assert len(made) == len(set(made)) + 8 == 16, "each once, and again after others"


def check_wanted(schema: str, name: str, record: dict, fields: set) -> None:
    data = avro.write_record(schema, record)
    read = _avro_sparse.reader_of(json.loads(schema), {name: fields})
    cursor = _avro.Cursor(data + b"more")
    assert read(cursor) == {key: value for key, value in record.items() if key in fields}
    assert cursor.pos == len(data)
    for end in range(len(data)):
        cut = _avro.Cursor(data[:end])
        with pytest.raises((ValueError, struct.error)):
            read(cut)


@pytest.mark.parametrize("plain", [False, True])
def test_container(plain: bool) -> None:
    data = avro.write_container("HoodieCleanMetadata", CLEAN)
    with engine(plain=plain):
        read = avro.read_container(data)
    assert read == CLEAN | {
        "lastCompletedCommitTimestamp": "",
        "version": 1,
        "bootstrapPartitionMetadata": None,
        "extraMetadata": None,
    }


@pytest.mark.parametrize("plain", [False, True])
def test_every_cut_and_no_container_is_refused(plain: bool) -> None:
    data = avro.write_container("HoodieCleanMetadata", CLEAN)
    with engine(plain=plain):
        assert avro.read_container(data)
        for cut in range(len(data)):
            with pytest.raises(ValueError, match=r"."):
                avro.read_container(data[:cut])


@pytest.mark.parametrize("plain", [False, True])
@given(at=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255))
def test_a_flipped_byte_reads_or_is_refused(plain: bool, at: int, flip: int) -> None:
    data = bytearray(avro.write_container("HoodieCleanMetadata", CLEAN))
    data[at % len(data)] ^= flip
    with engine(plain=plain), suppress(ValueError):
        avro.read_container(bytes(data))


def test_compression_is_named() -> None:
    data = avro.write_container("HoodieCleanMetadata", CLEAN)
    squeezed = data.replace(b"avro.codec\x08null", b"avro.codec\x0edeflate")
    with pytest.raises(ValueError, match="'deflate'; supported: 'null'"):
        avro.read_container(squeezed)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="doesn't fit"):
        avro.write_container("HoodieCleanMetadata", CLEAN | {"partitionMetadata": 5})


def test_writing_without_fastavro_is_refused() -> None:
    with engine(plain=True), pytest.raises(ModuleNotFoundError, match="fastavro"):
        avro.write_container("HoodieCleanMetadata", CLEAN)


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


@pytest.mark.parametrize("way", ["plain", "fastavro", "some fields"])
@pytest.mark.parametrize("schema", UNBOUNDED.values(), ids=UNBOUNDED)
def test_values_that_no_bytes_account_for_are_not_decoded(schema: dict, way: str) -> None:
    """Issue 12, line 18: 2.4 kB of nested empty records stopped all answers for 13.6 s."""
    ones = b"\x02" * 64  # branch 1 of a union, one item of a list, true
    wanted = {str(schema["name"]): [field["name"] for field in schema["fields"]]}
    data = container(schema, ones)
    with engine(plain=way == "plain"):
        with pytest.raises(ValueError, match=r"values in \d+ bytes|items without bytes"):
            avro.read_container(data, wanted=wanted if way == "some fields" else None)
        with pytest.raises(ValueError, match=r"values in \d+ bytes|items without bytes"):
            avro.read_record(json.dumps(schema), ones)


@pytest.mark.parametrize("way", ["as it comes", "plain", "some fields"])
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
    """Issue 12, line 18: fastavro took 15 s and 2 GB for 10 MB of such records."""
    data = bytearray()
    _avro.put_long(data, 1_900_000)
    data += bytes(2_000_001)
    read = container(record_schema("T", l=kind), bytes(data))
    wanted = {"T": ["l"], "I": ["flag"]} if way == "some fields" else None
    expected = pytest.raises(ValueError, match="more than 1000002 values in 2000005 bytes")
    with engine(plain=way == "plain"), expected:
        avro.read_container(read, wanted=wanted)


def test_all_records_of_hudi_are_within_the_bounds() -> None:
    names = [path.stem for path in (ROOT / "timeline" / "avsc").glob("*.avsc")]
    assert len(names) == 16
    for name in names:
        text = avro.schema_text(name)
        assert len(avro.checked_schema(text)) * 8 < _avro_bounds.SCHEMA_CHARACTERS
        assert _avro_bounds.depth_of(json.loads(text)) < _avro_bounds.DEPTH / 2, name


def test_a_chain_of_records_is_not_followed_until_the_process_dies() -> None:
    """Issue 12, line 18: a compiled reader has no limit of depth but the stack of its thread."""
    fields = {"f0": EMPTY}
    for n in range(1, 1500):
        inner = "Empty" if n == 1 else f"R{n - 1}"
        fields[f"f{n}"] = ["null", record_schema(f"R{n}", a=inner, n="long")]
    schema = json.dumps(record_schema("T", **fields, last="R1499"))
    data = bytes(1500 + 1500)
    with pytest.raises(ValueError, match="RecursionError"):
        avro.read_record(schema, data)


def test_a_decimal_stays_the_bytes_that_it_is() -> None:
    """Issue 12, line 18: one of 400,000 bytes took 55 s to become a number."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 2}
    schema = json.dumps(record_schema("T", d=decimal))
    data = avro.write_record(schema, {"d": b"\x7f" * 1000})
    assert avro.read_record(schema, data) == read_plainly(avro.read_record, schema, data)
    assert avro.read_record(schema, data) == {"d": b"\x7f" * 1000}


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


@pytest.mark.parametrize("way", ["as it comes", "plain", "some fields"])
@pytest.mark.parametrize(
    "blocks",
    [[(1, b"\xff"), (1, b"\xff")], [(2, b"\xff\xff")], [(0, b""), (1, b"\x01")], [(1, b"")], []],
    ids=["two blocks", "two in a block", "an empty block", "no bytes", "no block"],
)
def test_a_container_of_other_than_one_record_is_refused_before_it_is_decoded(
    blocks: list[tuple[int, bytes]], way: str
) -> None:
    """Issue 12, line 18: 26 MB of 400 blocks, each within its bound, became 6 GB."""
    undecodable = container(record_schema("T", n="long"), *blocks)
    wanted = {"T": ["n"]} if way == "some fields" else None
    expected = pytest.raises(ValueError, match=r"where one belongs|a record of 0 bytes")
    with engine(plain=way == "plain"), expected:
        avro.read_container(undecodable, wanted=wanted)
