"""Key generators against Hudi's rules, applied row by row."""

import datetime as dt
import re
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.records.key.generator import (
    COMPLEX,
    CUSTOM,
    NON_PARTITION,
    SIMPLE,
    TIMESTAMP,
    KeyGenerator,
)
from strandline.records.key.timestamp_path import TimestampFormat
from tests.kit.short_runs import examples
from timeline.errors import ConfigError, InputError

ESCAPED = {*map(chr, range(32)), *"\"#%'*/:=?\\{[]^", "\x7f"}


def generator(keys="id", partitions="p", kind=None, **more):
    keys = tuple(keys.split(","))
    partitions = tuple(partitions.split(",")) if partitions else ()
    if kind is None:
        both_one = len(keys) == len(partitions) == 1
        kind = NON_PARTITION if not partitions else SIMPLE if both_one else COMPLEX
    return KeyGenerator(keys, partitions, kind, **more)


def rows(**columns):
    return pa.RecordBatch.from_pydict(columns)


def naive_key(fields, values, named):
    """Hudi's rule for one row; ``None``: it is an error."""
    if not any(values):
        return None
    if not named:
        return values[0]
    shown = ["__null__" if v is None else v or "__empty__" for v in values]
    return ",".join(f"{name}:{value}" for name, value in zip(fields, shown, strict=True))


def naive_segment(field, value, hive, encode):
    value = value or "__HIVE_DEFAULT_PARTITION__"
    if encode:
        value = "".join(f"%{ord(c):02X}" if c in ESCAPED else c for c in value)
    return f"{field}={value}" if hive else value


VALUES = st.none() | st.text(max_size=4)


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6))
def test_complex_keys_follow_the_rule(pairs):
    batch = rows(a=pa.array([a for a, _ in pairs], pa.string()),
                 b=pa.array([b for _, b in pairs], pa.string()))  # fmt: skip
    want = [naive_key("ab", pair, named=True) for pair in pairs]
    keys = generator("a,b", "p")
    assert keys.without_key(batch).to_pylist() == [key is None for key in want]
    made = keys.record_keys(batch).to_pylist()
    assert [got for got, key in zip(made, want, strict=True) if key] == [k for k in want if k]


@settings(max_examples=examples(150))
@given(
    st.lists(st.none() | st.text(max_size=6), min_size=1, max_size=6), st.booleans(), st.booleans()
)
def test_paths_follow_the_rule(values, hive, encode):
    batch = rows(p=pa.array(values, pa.string()), q=pa.array(["x"] * len(values)))
    paths = generator("id", "p,q", hive_style=hive, url_encode=encode)
    want = [naive_segment("p", value, hive, encode) for value in values]
    astray = any(
        {"", ".", "..", ".hoodie"} & set(part.split("/")) or "\x00" in part for part in want
    )
    if astray:
        with pytest.raises(InputError, match="partition column 'p' has the value"):
            paths.partition_paths(batch)
    else:
        tail = naive_segment("q", "x", hive, encode)
        assert paths.partition_paths(batch).to_pylist() == [f"{part}/{tail}" for part in want]


METADATA = ".hoodie_partition_metadata"


def test_reserved_names_are_no_partitions(subtests):
    for value, encode in product(
        [".", "..", ".hoodie", METADATA, f"{METADATA}.parquet"], [False, True]
    ):
        with subtests.test(value=value, encode=encode):
            with pytest.raises(
                InputError, match=f"'p' has the value '{value}', which can't"
            ) as caught:
                generator(url_encode=encode).partition_paths(rows(p=[value]))
            assert caught.value.hint == (
                f"write another value; '.', '..', '.hoodie' and '{METADATA}' are reserved"
            )
            hive = generator(hive_style=True).partition_paths(rows(p=[value]))
            assert hive.to_pylist() == [f"p={value}"]


def test_values_that_can_be_encoded_say_so(subtests):
    for value in ["/a", "a/", "a//b", "a/../b", "a\x00b", f"a/{METADATA}"]:
        with subtests.test(value=value):
            with pytest.raises(InputError, match="partition column 'p' has the value") as caught:
                generator().partition_paths(rows(p=[value]))
            assert (
                caught.value.hint
                == "encode it by hoodie.datasource.write.partitionpath.urlencode=true"
            )
            assert generator(url_encode=True).partition_paths(rows(p=[value]))[0].as_py()


@pytest.mark.parametrize("kind", ["TIMESTAMP", "CUSTOM"])
def test_a_format_of_times_that_makes_no_path_is_blamed(kind):
    times = TimestampFormat.of(
        {"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": "yyyy//MM"}
    )
    timed = frozenset({"p"} if kind == "CUSTOM" else ())
    paths = generator(kind=kind, times=times, timed=timed)
    with pytest.raises(InputError, match="'p' makes the path '1970//01', which can't") as caught:
        paths.partition_paths(rows(p=[1]))
    assert caught.value.hint == "change hoodie.keygen.timebased.output.dateformat"


def test_real_tables_paths():
    """The values and directories of tables that Hudi 1.2.0 wrote with URL encoding."""
    values = ["a b", "50%off", "k=v", "ünïcöde", "中文", "a+b&c", "q?x#y", "o'neil:1"]
    paths = generator(url_encode=True).partition_paths(rows(p=values))
    assert paths.to_pylist() == [
        "a b", "50%25off", "k%3Dv", "ünïcöde", "中文", "a+b&c", "q%3Fx%23y", "o%27neil%3A1",
    ]  # fmt: skip
    two = generator("id", "region,ts", hive_style=True, url_encode=True)
    batch = rows(region=["a/b c"], ts=[3])
    assert two.partition_paths(batch).to_pylist() == ["region=a%2Fb c/ts=3"]
    plain = generator().partition_paths(rows(p=["2025/01/01"]))
    assert plain.to_pylist() == ["2025/01/01"]


def test_without_partitions_the_path_is_empty():
    none = generator("id", "")
    batch = rows(id=["a", "b"])
    assert none.partition_paths(batch).to_pylist() == ["", ""]
    assert none.record_keys(batch).to_pylist() == ["a", "b"]
    assert generator("id,q", "").record_keys(rows(id=["a"], q=["b"])).to_pylist() == ["id:a,q:b"]


@pytest.mark.parametrize(
    ("kind", "keys"), [(COMPLEX, ["id:a", "id:a,q:b"]), (CUSTOM, ["a", "id:a,q:b"])]
)
def test_any_number_of_keys_goes_without_partitions(kind, keys):
    """Hudi makes such tables where the partition path is set and empty (#32)."""
    batch = rows(id=["a"], q=["b"])
    found = [generator(names, "", kind) for names in ("id", "id,q")]
    assert [each.record_keys(batch).to_pylist() for each in found] == [[key] for key in keys]
    assert [each.partition_paths(batch).to_pylist() for each in found] == [[""], [""]]


@pytest.mark.parametrize(("named", "want"), [(True, "id:k"), (False, "k")])
def test_one_key_column_under_complex_depends_on_the_table(named, want):
    keys = generator("id", "p,q", name_single_key=named)
    assert keys.record_keys(rows(id=["k"])).to_pylist() == [want]


def test_a_stored_key_tells_the_form_of_the_table():
    keys = generator("id", "p,q")
    assert keys.matching("id:r0000").record_keys(rows(id=["k"])).to_pylist() == ["id:k"]
    assert keys.matching("r0000").record_keys(rows(id=["k"])).to_pylist() == ["k"]


JAVA_TEXT = [
    (pa.array([True, False]), ["true", "false"]),
    (pa.array([-5, 2**62]), ["-5", str(2**62)]),
    (pa.array([1, -1], pa.int8()), ["1", "-1"]),
    (pa.array(["x", "ü"], pa.large_string()), ["x", "ü"]),
    (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
    (pa.array([dt.date(2013, 1, 1), dt.date(1969, 12, 31)]), ["2013-01-01", "1969-12-31"]),
    (pa.array([Decimal("12.50"), Decimal("-0.01")], pa.decimal128(8, 2)), ["12.50", "-0.01"]),
    (pa.array([Decimal(0), Decimal("1e-10")], pa.decimal128(20, 10)), ["0E-10", "1E-10"]),
    (pa.array([1, -1], pa.timestamp("us", tz="Asia/Tokyo")), ["1", "-1"]),
    (pa.array([10**15, 0], pa.timestamp("us")), ["1000000000000000", "0"]),
]


def test_values_become_the_text_that_java_gives(subtests):
    for array, text in JAVA_TEXT:
        with subtests.test(array=array):
            batch = rows(id=array, p=array)
            assert generator().record_keys(batch).to_pylist() == text
            assert generator().partition_paths(batch).to_pylist() == text
            table = pa.Table.from_batches([batch, batch.slice(0, 1)])
            assert generator().record_keys(table).to_pylist() == [*text, text[0]]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1]]), pa.array([1], pa.uint8()),
        pa.array([{"a": 1}]), pa.array([1], pa.timestamp("ns")),
    ],
    ids=lambda array: str(array.type),
)  # fmt: skip
def test_types_without_one_text_are_refused(array):
    batch = rows(id=array, p=array)
    with pytest.raises(InputError, match=re.escape(f"key column 'id' has the type {array.type}")):
        generator().record_keys(batch)
    with pytest.raises(InputError, match="partition column 'p' has the type"):
        generator().partition_paths(batch)


def test_null_and_empty_keys_are_found():
    texts = pa.array(["a", None, "", "b"])
    batch = rows(id=texts, n=pa.array([1, None, 2, 3]), coded=texts.dictionary_encode())
    for column in ("id", "coded"):
        assert generator(column).without_key(batch).to_pylist() == [False, True, True, False]
    assert generator("n").without_key(batch).to_pylist() == [False, True, False, False]
    assert generator("id", "p,q").record_keys(rows(id=["a"], q=["b"])).to_pylist() == ["id:a"]


def test_a_missing_column_is_named():
    with pytest.raises(InputError, match="no column 'id'"):
        generator().record_keys(rows(p=["x"]))
    with pytest.raises(InputError, match="no column 'p'"):
        generator().partition_paths(rows(id=["x"]))


def test_keys_reach_into_structs():
    batch = rows(k=pa.array([{"id": 7}]), p=["x"])
    assert generator("k.id").record_keys(batch).to_pylist() == ["7"]


def test_no_rows_give_no_keys():
    empty = pa.schema([("id", pa.int64()), ("p", pa.string()), ("q", pa.string())]).empty_table()
    for made in (generator(), generator("id,q", "p,q"), generator("id", "")):
        assert len(made.record_keys(empty)) == 0
        assert len(made.partition_paths(empty)) == 0


@pytest.mark.parametrize(
    ("keys", "partitions", "kind"),
    [
        ("id", "p,q", SIMPLE), ("id", "", TIMESTAMP), ("id", "p", NON_PARTITION),
    ],
)  # fmt: skip
def test_generators_that_cannot_be_are_refused(keys, partitions, kind):
    with pytest.raises(ConfigError, match=f"key generator type '?{kind}"):
        generator(keys, partitions, kind)


INVALID = [b"\xff\xfe", b"\xed\xa0\x80", b"a\xc3"]


def test_text_that_is_not_utf_8_is_refused(subtests):
    for data, kind, is_dictionary in product(
        INVALID, [pa.string(), pa.large_string()], [False, True]
    ):
        with subtests.test(data=data, kind=kind, is_dictionary=is_dictionary):
            binary = pa.large_binary() if kind == pa.large_string() else pa.binary()
            column = pa.array([b"a", data], binary).view(kind)
            if is_dictionary:
                column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), column)
            good = pa.array(["k", "l"])
            with pytest.raises(InputError, match="key column 'id' has text that isn't UTF-8"):
                generator().record_keys(rows(id=column, p=good))
            with pytest.raises(InputError, match="partition column 'p' has text that isn't UTF-8"):
                generator().partition_paths(rows(id=good, p=column))


@pytest.mark.parametrize(("kind", "value"), [(pa.float32(), 2.0**25), (pa.float64(), 1e22)])
def test_floats_that_versions_of_java_write_differently_are_no_keys(kind, value):
    batch = rows(id=pa.array([1.5, -value], kind), p=pa.array(["x", "y"]))
    generator = KeyGenerator(("id",), ("p",), "SIMPLE")
    with pytest.raises(InputError, match="text differs between versions of Java"):
        generator.record_keys(batch)


def test_values_that_are_paths_are_not_copied():
    column = pa.array(["eu", "us", "eu"])
    paths = generator().partition_paths(rows(p=column))
    assert paths.to_pylist() == ["eu", "us", "eu"]
    assert paths.buffers()[-1].address == column.buffers()[-1].address
