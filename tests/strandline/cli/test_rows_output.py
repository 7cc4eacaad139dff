"""Rows of every type in every form of output; on a terminal nothing that it would obey."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from strandline.cli.output import FORMATS
from strandline.cli.rows_output import print_row, print_rows
from timeline.errors import InputError

AT = datetime(2026, 1, 31, 12, 0, 0, 5000, timezone.utc)
EVERY = pa.table(
    {
        "n": pa.array([1, None], pa.int64()),
        "x": pa.array([float("nan"), float("-inf")]),
        "flag": [True, False],
        "text": ['a, "b"\nc', ""],
        "price": pa.array([Decimal("1.10"), None]),
        "day": [date(2026, 1, 31), None],
        "noon": pa.array([time(12), None]),
        "at": pa.array([AT, None], pa.timestamp("ms", "UTC")),
        "took": pa.array([timedelta(seconds=2), None]),
        "raw": [b"\xff\x00", None],
        "logs": pa.array([[{"p": "a", "x": float("inf")}], None]),
        "map": pa.array([[("k", AT)], None], pa.map_(pa.string(), pa.timestamp("s"))),
        "pairs": pa.array([[(1, "v")], []], pa.map_(pa.int64(), pa.string())),
        "word": pa.array(["w", None]).dictionary_encode(),
        "none": pa.nulls(2),
    }
)
FIRST = {
    "n": 1,
    "x": "NaN",
    "flag": True,
    "text": 'a, "b"\nc',
    "price": "1.10",
    "day": "2026-01-31",
    "noon": "12:00:00",
    "at": "2026-01-31T12:00:00.005+00:00",
    "took": "0:00:02",
    "raw": base64.b64encode(b"\xff\x00").decode(),
    "logs": [{"p": "a", "x": "Infinity"}],
    "map": {"k": "2026-01-31T12:00:00"},
    "pairs": [[1, "v"]],
    "word": "w",
    "none": None,
}


NEWLINES = pacsv.ParseOptions(newlines_in_values=True)


class Stdout(io.TextIOWrapper):
    """A stdout whose bytes can be read afterwards."""

    def __init__(self, *, is_terminal: bool = False, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def printed(rows: Any, output: str, stdout: Stdout | None = None, **more: Any) -> bytes:
    into = stdout or Stdout()
    with redirect_stdout(into):
        print_rows(rows, output, **more)
    made = into.buffer
    assert isinstance(made, io.BytesIO)
    return made.getvalue()


def test_json_and_jsonl_have_every_type():
    lines = [json.loads(line) for line in printed(EVERY, "jsonl").splitlines()]
    assert lines[0] == FIRST
    assert lines[1] == {
        **dict.fromkeys(FIRST),
        "x": "-Infinity",
        "flag": False,
        "text": "",
        "pairs": [],
    }
    whole = json.loads(printed(EVERY, "json", name="all", head={"instant": "1"}))
    assert whole == {"instant": "1", "all": lines}
    assert json.loads(printed(EVERY.slice(0, 0), "json")) == {"rows": []}


def test_csv_has_every_type():
    text = printed(EVERY, "csv").decode()
    head, first, second = csv.reader(io.StringIO(text))
    assert head == list(FIRST)
    row = dict(zip(head, first, strict=True))
    assert (row["text"], row["price"], row["flag"]) == (FIRST["text"], "1.10", "true")
    assert row["at"] == "2026-01-31 12:00:00.005Z"
    assert json.loads(row["logs"]) == FIRST["logs"]
    assert row["raw"] == FIRST["raw"]
    assert second[head.index("n")] == ""
    # An empty text, unlike null, is quoted.
    assert text.splitlines()[-1].startswith(',-inf,false,"",,')


@pytest.mark.parametrize("column", [[1, None, 3], ["a\n\n", None, ""], [[1], None, []]], ids=str)
def test_csv_of_one_column_has_no_blank_lines(column):
    text = printed(pa.table({"a": column}), "csv")
    assert len(list(filter(None, csv.reader(io.StringIO(text.decode()))))) == 4
    assert pacsv.read_csv(io.BytesIO(text), parse_options=NEWLINES).num_rows == 3


FAR_TIMES = pa.array([0, 432_000_000_000_000, None], pa.timestamp("ms", "UTC"))
FAR_DAYS = pa.array([0, 5_000_000, None], pa.int32()).cast(pa.date32())
NOT_UTF8 = pa.array([b"a", b"b\xff", None], pa.binary())
NOT_UTF8 = pa.Array.from_buffers(pa.string(), 3, NOT_UTF8.buffers())
ODD = {
    "time": (FAR_TIMES, "15659-07-15T00:00:00.000Z"),
    "day": (FAR_DAYS, "15659-07-15"),
    "text": (NOT_UTF8, "b\ufffd"),
    "list": (pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), NOT_UTF8), ["b\ufffd"]),
    "struct": (pa.StructArray.from_arrays([FAR_DAYS], ["d"]), {"d": "15659-07-15"}),
    "map": (
        pa.MapArray.from_arrays(
            pa.array([0, 1, 2, 3], pa.int32()), pa.array(list("abc")), FAR_DAYS
        ),
        {"b": "15659-07-15"},
    ),
    "dictionary": (NOT_UTF8.dictionary_encode(), "b\ufffd"),
}


@pytest.mark.parametrize("kind", ODD)
def test_values_that_python_can_not_hold_are_text(kind):
    column, wanted = ODD[kind]
    rows = pa.table({"n": [0, 1, 2], "odd": column})
    lines = [json.loads(line) for line in printed(rows, "jsonl").splitlines()]
    assert [line["n"] for line in lines] == [0, 1, 2]
    assert lines[1]["odd"] == wanted
    assert json.loads(printed(rows, "json")) == {"rows": lines}
    assert len(printed(rows, "table").splitlines()) == 4
    for is_terminal in (False, True):
        shown = printed(rows, "csv", Stdout(is_terminal=is_terminal))
        assert len(shown.splitlines()) == 4


def test_arrow_is_the_rows_themselves():
    read = pa.ipc.open_stream(printed(EVERY, "arrow")).read_all()
    assert str(read.to_pylist()) == str(EVERY.to_pylist())
    assert read.schema == EVERY.schema
    assert pa.ipc.open_stream(printed(EVERY.slice(0, 0), "arrow")).schema == EVERY.schema


def test_table_is_columns_as_wide_as_their_cells():
    rows = pa.table({"name": ["a", "long one"], "n": [10, None], "on": [True, False]})
    assert printed(rows, "table").decode().splitlines() == [
        "name      n   on",
        "a         10  true",
        "long one      false",
    ]
    assert printed(rows.slice(0, 0), "table") == b""
    batches = [rows.slice(at, 1).to_batches()[0] for at in (0, 1)]
    reader = pa.RecordBatchReader.from_batches(rows.schema, batches)
    assert printed(reader, "table") == printed(rows, "table")


@pytest.mark.parametrize("output", FORMATS)
def test_columns_and_limit(output):
    rows = pa.table({"a": range(9), "b": range(9), "c": range(9)})
    chosen = pa.table({"c": range(2), "a": range(2)})
    wanted = printed(chosen, output)
    assert printed(rows, output, columns=("c", "a"), limit=2) == wanted
    assert printed(pa.concat_tables([rows] * 3), output, columns=("c", "a"), limit=2) == wanted


def test_an_unknown_column_names_the_nearest():
    with pytest.raises(InputError, match="no column 'pric'; the nearest is 'price'"):
        printed(EVERY, "csv", columns=("n", "pric"))
    with pytest.raises(InputError, match="no column 'zzzz'; allowed: n, x, flag"):
        printed(EVERY, "csv", columns=("zzzz",))


@pytest.mark.parametrize("output", [f for f in FORMATS if f != "arrow"])
def test_rows_are_printed_as_they_are_read(output):
    """Those before an error of the source are printed, and it isn't hidden."""

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(2):
            yield pa.record_batch({"n": pa.array([n] * 5_000)})
        raise InputError("the third")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
    into = Stdout()
    with redirect_stdout(into), pytest.raises(InputError, match="the third"):
        print_rows(reader, output)
    made = into.buffer
    assert isinstance(made, io.BytesIO)
    assert made.getvalue().count(b"1") >= 5_000


def test_a_row_is_an_object_of_its_own():
    into = Stdout()
    with redirect_stdout(into):
        print_row({"a": 1, "b": None}, "json")
    made = into.buffer
    assert isinstance(made, io.BytesIO)
    assert made.getvalue() == b'{"a": 1, "b": null}\n'


HOSTILE = "\x1b[31mred\x1b[0m\x9b2J\r\nnext\u202e"


@pytest.mark.parametrize("output", ["table", "csv", "json", "jsonl"])
@pytest.mark.parametrize("columns", ["40", "200"])
def test_a_terminal_gets_no_control_characters(output, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    rows = pa.table({HOSTILE: [HOSTILE], "list": [[HOSTILE]]})
    shown = printed(rows, output, Stdout(is_terminal=True)).decode()
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown) == []
    assert "red" in shown
    assert "\\x1b[31m" in shown or "\\u001b[31m" in shown


def test_into_a_pipe_csv_is_what_is_stored():
    rows = pa.table({"a": [HOSTILE]})
    text = printed(rows, "csv").decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["a"], [HOSTILE]]


@pytest.mark.parametrize(
    ("encoding", "output", "wanted"),
    [
        ("ascii", "table", b"a\n\\xfc\n"),
        ("ascii", "jsonl", '{"a": "ü"}\n'.encode()),
        ("latin-1", "csv", '"a"\n"ü"\n'.encode()),
    ],
)
def test_machines_read_utf8_whatever_the_locale(encoding, output, wanted):
    assert printed(pa.table({"a": ["ü"]}), output, Stdout(encoding=encoding)) == wanted


@pytest.mark.parametrize("error", [BrokenPipeError, OSError])
@pytest.mark.parametrize("output", FORMATS)
def test_an_error_of_stdout_is_its_own(output: str, error: Callable[..., OSError]) -> None:
    class Broken(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _: Any) -> int:
            raise error(32, "gone")

    into = io.TextIOWrapper(io.BufferedWriter(Broken()))
    with redirect_stdout(into), pytest.raises(OSError, match="gone") as raised:
        print_rows(pa.table({"n": range(50_000)}), output)
    assert raised.value.errno == 32
    with suppress(OSError):  # what it has buffered
        into.detach().detach()
