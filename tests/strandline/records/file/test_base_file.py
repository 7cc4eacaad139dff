"""Base files: their content, and that it is read back unchanged."""

import io
import json
import weakref
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.records.file.base_file import (
    read_base_file,
    read_footer,
    read_stored_schema,
    stored_rows,
)
from strandline.records.file.base_file_writer import CODEC, BaseFileSettings, BaseFileWriter
from strandline.records.file.bloom import BloomFilter
from strandline.records.meta_fields import META_FIELDS, with_meta_fields
from strandline.records.schema.avro_schema import arrow_to_avro, avro_to_arrow
from tests.kit.formats.all_types import ALL_TYPES, FULL_ROW
from tests.kit.formats.base_files import write_base_file
from tests.kit.garbage import collect_garbage
from tests.strandline.records.file.bloom_reader import BloomReader
from timeline.errors import AlreadyExistsError, PathNotFoundError, TableError
from timeline.storage.local import LocalStorage

JAVA_FILE = Path(__file__).parents[3] / "golden" / "base_files" / "cow_basic_v9.parquet"


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path))


def stamped(table, keys=None):
    keys = keys or table.column("id").to_pylist()
    meta = {"_hoodie_commit_time": "20250101000000000", "_hoodie_commit_seqno": "s",
            "_hoodie_partition_path": "p", "_hoodie_file_name": "f.parquet"}  # fmt: skip
    columns = [
        keys if name == "_hoodie_record_key" else [meta[name]] * len(table) for name in META_FIELDS
    ]
    return pa.Table.from_arrays(
        [*(pa.array(c, pa.string()) for c in columns), *table.columns],
        schema=with_meta_fields(table.schema),
    )


def simple(keys):
    return stamped(
        pa.table({"id": pa.array(keys, pa.string()), "n": pa.array(range(len(keys)), pa.int64())})
    )


def read_pieces(storage, path):
    with stored_rows(storage, path) as stored:
        return pa.concat_tables(stored.pieces())


def write(storage, path, table, settings=None):
    own = pa.schema(list(table.schema)[len(META_FIELDS) :])
    return write_base_file(storage, path, table, arrow_to_avro(own, "t"), settings)


def test_every_type_comes_back(storage):
    empty_row = dict.fromkeys(FULL_ROW) | {"id": "none"}
    table = stamped(pa.Table.from_pylist([FULL_ROW, empty_row], schema=ALL_TYPES))
    written = write(storage, "p/f.parquet", table)
    assert written.rows == 2
    assert written.size == storage.stat("p/f.parquet").size
    assert read_base_file(storage, "p/f.parquet").cast(table.schema) == table


def test_types_lie_as_java_reads_them(storage):
    write(storage, "f", stamped(pa.Table.from_pylist([FULL_ROW], schema=ALL_TYPES)))
    with storage.open_input("f") as source:
        file = pq.ParquetFile(source)
        columns = {
            file.schema.column(i).path: file.schema.column(i) for i in range(len(file.schema))
        }
        assert "ARROW:schema" not in {k.decode() for k in file.metadata.metadata}
        assert file.schema.names[:5] == list(META_FIELDS)
    assert columns["at"].physical_type == "INT64"
    assert json.loads(columns["at"].logical_type.to_json())["isAdjustedToUTC"] is True
    assert json.loads(columns["local"].logical_type.to_json())["isAdjustedToUTC"] is False
    assert columns["small"].physical_type == "FIXED_LEN_BYTE_ARRAY"
    assert columns["small"].length == 3
    assert {"words.list.element", "grid.list.element.list.element", "points.list.element.x"} <= set(
        columns
    )
    assert {"counts.key_value.key", "counts.key_value.value"} <= set(columns)


def test_the_footer_has_what_java_looks_for(storage):
    table = simple(["b", "a", "c"])
    write(storage, "f", table, BaseFileSettings(bloom_entries=50))
    footer = read_footer(storage, "f")
    assert footer.keys() == {
        "parquet.avro.schema", "writer.model.name", "org.apache.hudi.bloomfilter",
        "hoodie_bloom_filter_type_code", "hoodie_min_record_key", "hoodie_max_record_key",
    }  # fmt: skip
    assert footer["writer.model.name"] == "avro"
    assert (footer["hoodie_min_record_key"], footer["hoodie_max_record_key"]) == ("a", "c")
    assert avro_to_arrow(footer["parquet.avro.schema"]).names == table.schema.names
    expected = BloomFilter(50)
    expected.add_all(pa.array(["b", "a", "c"]))
    assert footer["org.apache.hudi.bloomfilter"] == expected.to_base64()
    assert footer["hoodie_bloom_filter_type_code"] == "DYNAMIC_V0"


def test_a_filter_is_sized_to_its_file_by_default(storage):
    keys = [f"k{i}" for i in range(300)]
    write(storage, "own", simple(keys))
    write(storage, "java", simple(keys), BaseFileSettings(bloom_entries=60_000))
    write(storage, "simple", simple(keys), BaseFileSettings(bloom_type="SIMPLE"))
    sizes = {
        p: len(read_footer(storage, p)["org.apache.hudi.bloomfilter"]) for p in ("own", "java")
    }
    assert sizes["own"] < 2500
    assert sizes["java"] > 400_000
    assert read_footer(storage, "simple")["hoodie_bloom_filter_type_code"] == "SIMPLE"


def test_a_file_without_a_filter_has_its_key_range(storage):
    write(storage, "f", simple(["b", "a"]), BaseFileSettings(has_bloom=False))
    assert set(read_footer(storage, "f")) == {
        *("parquet.avro.schema", "writer.model.name"),
        *("hoodie_min_record_key", "hoodie_max_record_key"),
    }


@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("entries", [None, 50])
def test_a_rewritten_file_keeps_its_filter(storage, more, entries):
    """It is taken over where it is what adding all keys gives, as the sizes of both are equal."""
    keys = [f"k{number}" for number in range(60 + more)]
    settings = BaseFileSettings(bloom_entries=entries)
    write(storage, "old", simple(keys[:60]), settings)
    write(storage, "whole", simple(keys), settings)
    avro = arrow_to_avro(pa.schema([("id", pa.string()), ("n", pa.int64())]), "t")
    with storage.create_stream("new") as stream, stored_rows(storage, "old") as old:
        writer = BaseFileWriter(stream, avro, settings)
        writer.write(simple(keys))
        writer.keep_bloom(old)
        writer.close()
    assert read_footer(storage, "new") == read_footer(storage, "whole")


@pytest.mark.parametrize(
    ("keys", "low", "high"),
    [
        (["b", "a", "Z"], "Z", "b"),
        (["é", "中", "a"], "a", "中"),
        (["a😀", "a\uff5e"], "a😀", "a\uff5e"),  # by code points it would be the other way round
    ],
)
def test_the_key_range_is_in_javas_order(storage, keys, low, high):
    write(storage, "f", simple(keys))
    footer = read_footer(storage, "f")
    assert (footer["hoodie_min_record_key"], footer["hoodie_max_record_key"]) == (low, high)


def test_a_file_without_rows_is_a_file(storage):
    written = write(storage, "f", simple([]))
    assert written.rows == 0
    assert "hoodie_min_record_key" not in read_footer(storage, "f")
    empty = read_base_file(storage, "f")
    assert (empty.num_rows, empty.schema.names) == (0, [*META_FIELDS, "id", "n"])


@pytest.mark.property
def test_pieces_make_row_groups_and_one_filter(storage):
    pieces = [simple([f"k{g}-{i:04d}" for i in range(1500)]) for g in range(3)]
    avro = arrow_to_avro(pa.schema([("id", pa.string()), ("n", pa.int64())]), "t")
    stream = io.BytesIO()
    # Each piece is larger than a row group may be, so it becomes one at once.
    writer = BaseFileWriter(stream, avro, BaseFileSettings(row_group_bytes=50_000))
    for piece in pieces:
        writer.write(piece)
    written = writer.close()
    assert written.rows == 4500
    assert written.size == len(stream.getvalue())
    storage.create("f", stream.getvalue())
    with storage.open_input("f") as source:
        assert pq.ParquetFile(source).metadata.num_row_groups >= 3
    whole = pa.concat_tables(pieces)
    assert read_base_file(storage, "f") == whole
    assert read_pieces(storage, "f") == whole.drop_columns(["_hoodie_file_name"])
    bloom = BloomReader(read_footer(storage, "f")["org.apache.hudi.bloomfilter"], "DYNAMIC_V0")
    assert all(key in bloom for key in whole["_hoodie_record_key"].to_pylist())


@pytest.mark.property
def test_pieces_are_the_same_whether_keys_were_read_before_or_not(storage):
    """Several row groups, and a row group of more than one piece."""
    table = simple([f"k{i:06d}" for i in range(150_000)])
    pq.write_table(table, Path(storage.base_path) / "f", row_group_size=140_000)
    with stored_rows(storage, "f") as stored:
        assert stored.keys() == table["_hoodie_record_key"]
        pieces = list(stored.pieces())
    assert [len(piece) for piece in pieces] == [131_072, 140_000 - 131_072, 10_000]
    assert pa.concat_tables(pieces) == read_pieces(storage, "f")
    assert pa.concat_tables(pieces) == table.drop_columns(["_hoodie_file_name"])


@pytest.mark.property
@pytest.mark.parametrize(("count", "width", "most"), [(80_000, 300, 16_384), (8_000, 3_000, 2_800)])
def test_a_lean_reader_holds_a_small_piece_and_little_else(storage, count, width, most):
    text = np.random.default_rng(1).bytes(count * width // 2).hex()
    texts = [text[at : at + width] for at in range(0, len(text), width)]
    table = stamped(pa.table({"id": [f"k{number:06d}" for number in range(count)], "text": texts}))
    pq.write_table(table, Path(storage.base_path) / "f", compression="none")
    before = pa.total_allocated_bytes()
    with stored_rows(storage, "f", lean=True) as stored:
        pieces = stored.pieces()
        found = [next(pieces)]
        assert pa.total_allocated_bytes() - before < storage.stat("f").size * 3 / 4
        found += pieces
    assert most * 0.9 < len(found[0]) <= most
    assert pa.concat_tables(found) == table.drop_columns(["_hoodie_file_name"])


def test_commit_times_of_several_writes_share_a_dictionary(storage):
    table = simple([f"k{number}" for number in range(3_000)])
    later = table.set_column(0, "_hoodie_commit_time", pa.array(["20250101000000001"] * 3_000))
    with storage.create_stream("f") as stream:
        writer = BaseFileWriter(stream, arrow_to_avro(pa.schema(list(table.schema)[5:]), "t"))
        for rows in (table, later):
            writer.write(rows)
        writer.close()
    assert read_base_file(storage, "f") == pa.concat_tables([table, later])
    with storage.open_input("f") as source:
        times = pq.ParquetFile(source).metadata.row_group(0).column(0)
    assert times.total_uncompressed_size < 2_000


def test_an_error_of_whoever_reads_pieces_is_no_error_of_the_file(storage):
    write(storage, "f", simple(["a"]))
    with pytest.raises(OSError, match="disk full"), stored_rows(storage, "f") as stored:  # noqa: PT012
        for _ in stored.pieces():
            raise OSError("disk full")


def test_values_that_repeat_are_in_dictionaries(storage):
    count = 9_000
    columns = {
        "id": [f"k{number}" for number in range(count)],
        "few": [number % 7 for number in range(count)],
        "rate": [number % 5 / 4 for number in range(count)],
        "many": list(range(count)),
        "tags": [[number] for number in range(count)],
    }
    write(storage, "f", stamped(pa.table(columns)))
    with storage.open_input("f") as source:
        group = pq.ParquetFile(source).metadata.row_group(0)
        chunks = [group.column(at) for at in range(group.num_columns)]
    encoded = {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}
    assert encoded == {
        "_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_file_name", "few", "rate"
    }  # fmt: skip


@pytest.mark.parametrize("codec", CODEC.allowed)
def test_each_codec_is_readable(storage, codec):
    table = simple(["a", "b"])
    write(storage, codec, table, BaseFileSettings(compression=codec))
    assert read_base_file(storage, codec) == table
    with storage.open_input(codec) as source:
        used = pq.ParquetFile(source).metadata.row_group(0).column(0).compression
    assert used.lower() == codec.replace("lz4_raw", "lz4")


def test_columns_are_read_in_the_order_asked_for(storage):
    write(storage, "f", simple(["a", "b"]))
    assert read_base_file(storage, "f", ["n", "_hoodie_record_key"]).to_pydict() == {
        "n": [0, 1],
        "_hoodie_record_key": ["a", "b"],
    }


def test_java_files_are_read(storage):
    storage.create("f", JAVA_FILE.read_bytes())
    table = read_base_file(storage, "f")
    footer = read_footer(storage, "f")
    assert table.schema == avro_to_arrow(footer["parquet.avro.schema"])
    keys = table["_hoodie_record_key"].to_pylist()
    assert (min(keys), max(keys)) == (
        footer["hoodie_min_record_key"],
        footer["hoodie_max_record_key"],
    )
    own = pa.schema([f for f in table.schema if f.name not in META_FIELDS])
    assert arrow_to_avro(own, "t_cow_basic_v9") == json.dumps(
        json.loads(footer["parquet.avro.schema"])
        | {"fields": json.loads(footer["parquet.avro.schema"])["fields"][5:]},
        separators=(",", ":"),
    )


def test_old_96_bit_timestamps_come_as_microseconds(storage, tmp_path):
    moments = pa.table({"at": pa.array([1, 2], pa.timestamp("us"))})
    pq.write_table(moments, tmp_path / "old", use_deprecated_int96_timestamps=True)
    assert read_base_file(storage, "old")["at"].cast(pa.int64()).to_pylist() == [1, 2]


@pytest.mark.parametrize("is_old", [True, False])
def test_the_stored_schema_is_that_of_the_rows(storage, tmp_path, is_old):
    rows = pa.Table.from_pylist([FULL_ROW], ALL_TYPES)
    pq.write_table(rows, tmp_path / "old", use_deprecated_int96_timestamps=is_old)
    assert read_stored_schema(storage, "old") == read_base_file(storage, "old").schema


def test_a_taken_path_is_left_alone(storage):
    write(storage, "f", simple(["a"]))
    with pytest.raises(AlreadyExistsError):
        write(storage, "f", simple(["b"]))
    assert read_base_file(storage, "f")["id"].to_pylist() == ["a"]


def test_what_cannot_be_read_is_named(storage):
    storage.create("bad", b"PAR1 and no footer")
    write(storage, "good", simple(["a"]))
    with pytest.raises(TableError, match=r"bad under .* can't be read"):
        read_base_file(storage, "bad")
    with pytest.raises(TableError, match=r"good lacks the columns \['nothing'\]"):
        read_base_file(storage, "good", ["nothing"])
    with pytest.raises(PathNotFoundError):
        read_base_file(storage, "missing")


def test_a_damaged_page_is_named(storage):
    write(storage, "f", simple([f"k{i}" for i in range(100)]))
    data = bytearray(storage.read("f"))
    data[4:200] = bytes(196)
    storage.create("damaged", bytes(data))
    with pytest.raises(TableError, match="damaged under"):
        read_base_file(storage, "damaged")
    with pytest.raises(TableError, match="damaged under"):
        read_pieces(storage, "damaged")


def test_a_failed_write_leaves_nothing_behind(storage):
    """Not even a complaint of the writer's when it is collected (warnings are errors here)."""

    def write_half():
        with storage.create_stream("f") as stream:
            writer = BaseFileWriter(stream, "{}", BaseFileSettings(row_group_bytes=1))
            writer.write(simple(["a"]))
            raise KeyError("reading the next piece failed")

    with pytest.raises(KeyError):
        write_half()
    collect_garbage()
    assert storage.stat("f") is None


def test_a_writer_without_a_table_says_so():
    with pytest.raises(ValueError, match="needs a table"):
        BaseFileWriter(io.BytesIO(), "{}").close()


def test_rows_that_are_written_arent_kept():
    """A batch from Spark is one buffer, which a slice of any of its columns would keep."""
    rows = simple([f"k{number}" for number in range(2000)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    message = bytearray(sink.getvalue())
    held = weakref.ref(holder := np.frombuffer(message, np.uint8))
    batches = pa.ipc.open_stream(pa.py_buffer(holder))
    avro = arrow_to_avro(rows.schema, "t")
    writer = BaseFileWriter(io.BytesIO(), avro, BaseFileSettings(row_group_bytes=1))
    writer.write(pa.Table.from_batches(batches))
    del batches, holder
    collect_garbage()
    assert held() is None
    assert writer.close().rows == 2000
