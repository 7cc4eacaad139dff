"""Records in Avro binary: what was written is read, whole or the fields that are wanted."""

import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.formats.avro_container import by_fastavro, container, record_schema
from tests.kit.short_runs import quick_runs
from timeline.encoding import avro
from timeline.encoding import avro_binary as _avro
from timeline.encoding import avro_projection as _avro_sparse

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
            {"name": "digits", "type": {"type": "fixed", "name": "Digits", "size": 3}},
            {"name": "again", "type": ["null", "Digits"], "default": None},
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
            "digits": st.binary(min_size=3, max_size=3),
            "again": st.none() | st.binary(min_size=3, max_size=3),
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
def test_what_was_written_is_read_as_by_fastavro(record: dict) -> None:
    data = avro.write_record(ALL_TYPES, record)
    assert avro.read_record(ALL_TYPES, data) == record
    assert by_fastavro(ALL_TYPES, data) == record


def nested(name: str, **fields: object) -> dict:
    """Return a record's schema; ``namespace`` is its own."""
    own = {"namespace": fields.pop("namespace")} if "namespace" in fields else {}
    return {**record_schema(name, **fields), **own}


def fixed(size: int, **own: str) -> dict:
    return {"type": "fixed", "name": "fixed", "size": size, **own}


NAMESPACES = {
    "inherited": nested("T", namespace="n", a=fixed(2), b="n.fixed", c="fixed"),
    "of the enclosing record": nested(
        "n.T", a=nested("I", x=fixed(2)), b=nested("J", y="fixed"), c="n.I", d="n.fixed"
    ),
    "one name in two namespaces": nested(
        "n.T",
        a=fixed(2, namespace="n.a"),
        b=fixed(3, namespace="n.b"),
        c="n.a.fixed",
        d="n.b.fixed",
    ),
    "the nearer one": nested(
        "n.T", a=fixed(2), b=nested("I", namespace="m", x=fixed(3), y="fixed"), c="fixed"
    ),
    "a full name beside another namespace": nested(
        "T", namespace="n", a=nested("m.I", namespace="o", x=fixed(3), y="fixed"), b="m.fixed"
    ),
    "of itself": nested("n.T", a=["null", "T"], b=fixed(2), c=["null", "n.T"]),
}


def sample(schema: object, named: dict, namespace: str = "") -> object:
    """Return a value of a schema; branch null of a union."""
    if isinstance(schema, list):
        return None
    if isinstance(schema, str):
        return named[schema if "." in schema else f"{namespace}.{schema}"]
    before, _, short = schema["name"].rpartition(".")
    namespace = before or schema.get("namespace", namespace)
    if schema["type"] == "fixed":
        made: object = b"abcdefg"[: schema["size"]]
    else:
        made = {f["name"]: sample(f["type"], named, namespace) for f in schema["fields"]}
    named[f"{namespace}.{short}"] = made
    return made


def test_names_are_resolved_in_their_namespaces(subtests: pytest.Subtests) -> None:
    for name, schema in NAMESPACES.items():
        with subtests.test(name=name):
            record, text = sample(schema, {}), json.dumps(schema)
            data = avro.write_record(text, record)
            assert avro.read_record(text, data) == record
            assert by_fastavro(text, data) == record
            wanted = {"T": [field["name"] for field in schema["fields"]]}
            assert avro.read_container(container(schema, data), wanted=wanted) == record


ONE_BYTE = ["int", "long", "boolean", "string", "bytes"]


@pytest.mark.property
@pytest.mark.parametrize("kind", quick_runs(["bytes"], ONE_BYTE))
def test_large_arrays_of_one_byte_items(kind: str) -> None:
    items = {"boolean": [True], "string": [""], "bytes": [b""]}.get(kind, [7]) * 600_000
    schema = json.dumps(record_schema("T", items={"type": "array", "items": kind}))
    data = avro.write_record(schema, {"items": items})
    assert len(data) < 600_010
    assert avro.read_record(schema, data) == {"items": items}


def test_records_of_a_block_take_all_their_bytes() -> None:
    fields = [{"name": "value", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "Text", "fields": fields})
    data = avro.write_record(schema, {"value": "abc"})
    assert avro.read_records(schema, [data, data]) == [{"value": "abc"}] * 2
    with pytest.raises(ValueError, match=rf"of {len(data)} bytes in {len(data) + 1}"):
        avro.read_records(schema, [data, data + b"x"])


def test_enums_are_their_symbols() -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}
    schema = json.dumps(record_schema("T", first=kind, again=["null", "Kind"]))
    data = avro.write_record(schema, {"first": "C", "again": "B"})
    assert avro.read_record(schema, data) == by_fastavro(schema, data)
    for symbol in (b"\x06", b"\x01"):
        with pytest.raises(ValueError, match=r"symbol (3|-1) of 3"):
            avro.read_record(schema, symbol + data[1:])


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
def test_wanted_fields_of_any_type_are_those_of_the_whole(record: dict, fields: set) -> None:
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


def test_container() -> None:
    data = avro.write_container("HoodieCleanMetadata", CLEAN)
    assert avro.read_container(data) == CLEAN | {
        "lastCompletedCommitTimestamp": "",
        "version": 1,
        "bootstrapPartitionMetadata": None,
        "extraMetadata": None,
    }


def test_every_cut_and_no_container_is_refused() -> None:
    data = avro.write_container("HoodieCleanMetadata", CLEAN)
    assert avro.read_container(data)
    for cut in range(len(data)):
        with pytest.raises(ValueError, match=r"."):
            avro.read_container(data[:cut])


@settings(max_examples=100)
@given(at=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255))
def test_a_flipped_byte_reads_or_is_refused(at: int, flip: int) -> None:
    data = bytearray(avro.write_container("HoodieCleanMetadata", CLEAN))
    data[at % len(data)] ^= flip
    with suppress(ValueError):
        avro.read_container(bytes(data))


def test_compression_is_named() -> None:
    data = avro.write_container("HoodieCleanMetadata", CLEAN)
    squeezed = data.replace(b"avro.codec\x08null", b"avro.codec\x0edeflate")
    with pytest.raises(ValueError, match="'deflate'; supported: 'null'"):
        avro.read_container(squeezed)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="doesn't fit"):
        avro.write_container("HoodieCleanMetadata", CLEAN | {"partitionMetadata": 5})


def test_a_decimal_stays_the_bytes_that_it_is() -> None:
    """One of 400,000 bytes took 55 s to become a number."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 2}
    schema = json.dumps(record_schema("T", d=decimal))
    data = avro.write_record(schema, {"d": b"\x7f" * 1000})
    assert avro.read_record(schema, data) == by_fastavro(schema, data)
    assert avro.read_record(schema, data) == {"d": b"\x7f" * 1000}
