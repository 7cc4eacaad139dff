"""``strandline read``, ``count``, ``incremental``: rows in each form, and what is refused."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from strandline import LocalEngine, Table, WriteClient
from strandline.__main__ import main
from tests.kit.concurrency.patience import PROCESS_S

pytestmark = pytest.mark.property

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.embed.timeline.server": False,
}
TEXTS = [
    "plain",
    'a "quoted", text',
    "two\nlines",
    "",
    None,
    "größe 🙂",
    "=1+1",
    "'; drop table t; --",
]
ROWS = pa.table(
    {
        "id": list(range(8)),
        "day": ["mon", "tue"] * 4,
        "text": TEXTS,
        "price": [Decimal(n).scaleb(-2) if n != 3 else None for n in range(99, 107)],
        "at": [datetime(2024, 1, 2, n, tzinfo=timezone.utc) for n in range(8)],
        "date": [date(2024, 1, 1 + n) for n in range(8)],
        "seat": [{"row": str(n)} for n in range(8)],
    }
)
OWN = ROWS.schema.names


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two commits: eight rows, then one of them changed."""
    path = tmp_path_factory.mktemp("rows") / "t"
    with WriteClient(LocalEngine(), path, OPTIONS) as client:
        client.insert(ROWS)
        client.upsert(ROWS.slice(0, 1).set_column(2, "text", [["changed"]]))
    return path


@pytest.fixture(scope="module")
def expected(base) -> pa.Table:
    return Table(base).to_arrow()


def test_rows_are_printed_in_each_form(base, expected):
    def read(output: str) -> bytes:
        done = run("read", base, "--output", output)
        assert (done.exit_code, done.stderr) == (0, "8 rows\n")
        return done.stdout_bytes

    assert pa.ipc.open_stream(read("arrow")).read_all() == expected
    lines = [json.loads(line) for line in read("jsonl").decode().splitlines()]
    assert json.loads(read("json")) == {"rows": lines}
    assert [line["text"] for line in lines] == expected["text"].to_pylist()
    assert lines[0]["seat"] == {"row": "0"}
    table = read("table").decode()
    assert table.split()[:3] == OWN[:3], "meta columns are left out"
    assert "'; drop table t; --" in table


def test_other_programs_read_the_csv(base, expected, tmp_path):
    """DuckDB from a pipe, too, as its shell does; both tell empty text from null."""
    import duckdb

    arguments = ["read", str(base), "--output", "csv"]
    text = subprocess.run(
        [sys.executable, "-m", "strandline", *arguments], capture_output=True, check=True
    ).stdout
    (tmp_path / "rows.csv").write_bytes(text)
    query = f"from read_csv('{tmp_path / 'rows.csv'}', allow_quoted_nulls = false)"
    found = duckdb.sql(query).to_arrow_table()
    assert found.column_names == expected.column_names
    texts = [(row["id"], row["text"]) for row in found.to_pylist()]
    assert texts == [(row["id"], row["text"]) for row in expected.to_pylist()]
    assert found["date"].to_pylist() == expected["date"].to_pylist()
    count = "select count(id) from read_csv('/dev/stdin')"
    piped = f'import duckdb; print(duckdb.execute("{count}").fetchone())'
    counted = subprocess.run([sys.executable, "-c", piped], input=text, capture_output=True)
    assert counted.stdout == b"(8,)\n", counted.stderr
    polars = pl.read_csv(io.BytesIO(text), try_parse_dates=True)
    assert polars["text"].to_list() == expected["text"].to_pylist()
    assert polars["at"].dt.replace_time_zone(None).to_list() == [
        each.replace(tzinfo=None) for each in expected["at"].to_pylist()
    ]


def test_columns_filters_times_and_limits(base, subtests):
    first, second = Table(base).history()["requested_time"].to_pylist()
    for arguments, ids in [
        (["--filter", "price > 1 and day = 'tue'"], [3, 5, 7]),
        (["--filter", "seat.row in ('1', '2') or text is null"], [2, 4, 1]),
        (["--filter", "text = '''; drop table t; --'"], [7]),
        (["--filter", "date = '2024-01-03'"], [2]),
        (["--limit", 1], [0]),
        (["--limit", 0], []),
        (["--as-of", first, "--filter", "text = 'changed'"], []),
        (["--as-of", second, "--filter", "text = 'changed'"], [0]),
        (["--as-of", "2999-01-01", "--limit", 2, "--filter", "day = 'tue'"], [1, 3]),
        (["--read-optimized", "--filter", "id > 6"], [7]),
    ]:
        with subtests.test(arguments=arguments):
            done = run("read", base, "--columns", "id", "--output", "jsonl", *arguments)
            assert done.exit_code == 0, done.stderr
            assert [json.loads(line) for line in done.stdout.splitlines()] == [
                {"id": n} for n in ids
            ]


def test_rows_are_counted(base, subtests):
    first = Table(base).history()["requested_time"][0].as_py()
    for arguments, printed in [
        ([], "8\n"),
        (["--filter", "day = 'mon'"], "4\n"),
        (["--filter", "text = 'changed'", "--as-of", first], "0\n"),
        (["--read-optimized", "--output", "json"], '{"rows": 8}\n'),
        (["--output", "csv"], '"rows"\n8\n'),
    ]:
        with subtests.test(arguments=arguments):
            done = run("count", base, *arguments)
            assert (done.exit_code, done.stdout, done.stderr) == (0, printed, "")


def test_changes_are_printed_with_the_next_beginning(base):
    first = Table(base).history()["completion_time"][0].as_py()
    done = run("incremental", base, "--since", first, "--columns", "id,text", "--output", "csv")
    assert done.stdout == '"id","text"\n0,"changed"\n'
    rows, following = done.stderr.splitlines()
    assert rows == "1 row"
    since = following.removeprefix("next: --since ")
    assert run("incremental", base, "--since", since).stdout == ""
    for arguments, count in [
        (["--since", "earliest"], 8),
        (["--since", "earliest", "--until", first], 8),
        (["--since", "earliest", "--filter", "id < 3", "--limit", 2], 2),
        (["--since", "2999-01-01"], 0),
    ]:
        done = run("incremental", base, *arguments)
        assert done.exit_code == 0, done.stderr
        assert done.stderr.splitlines()[0] == f"{count} row{'' if count == 1 else 's'}"


def test_what_is_refused_is_one_line(base, subtests):
    for arguments, message in [
        (["read", base, "--columns", "id,tetx"], "no column 'tetx'; .* mean 'text'"),
        (["read", base, "--filter", "tetx = 'a'"], "no column 'tetx'.*character 1.* mean 'text'"),
        (["count", base, "--filter", "id = 'a'"], "'id', which is int64, with 'a'; allowed"),
        (["count", base, "--filter", "upper(day) = 'MON'"], r"UPPER\(day\).*isn't supported"),
        (["count", base, "--filter", "(" * 99], "more than 24 levels"),
        (["count", base, "--filter", ""], "has no condition"),
        (["read", base, "--as-of", "yesterday"], "as_of is 'yesterday'; allowed: an instant"),
        (["read", base, "--as-of", "2000-01-01"], "as_of 20000101000000000 is before 2.*, the ear"),
        (["read", base, "--limit", -1], "--limit"),
        (["incremental", base], "Missing option '--since'"),
        (["incremental", base, "--since", "latest"], "since is 'latest'; allowed"),
        (["incremental", base, "--since", "2999-01-01", "--until", "2000-01-01"], "is after until"),
        (["red", base], "No such command 'red'; the nearest is 'read'"),
    ]:
        with subtests.test(arguments=arguments):
            done = run(*arguments)
            assert (done.exit_code, done.stdout) == (2, "")
            assert len(done.stderr.splitlines()) == 1
            assert re.search(message, done.stderr), done.stderr


def test_a_reader_that_goes_away_ends_the_command(tmp_path):
    """More rows than a pipe holds."""
    rows = pa.table({"id": range(50_000), "day": ["mon"] * 50_000})
    with WriteClient(LocalEngine(), tmp_path / "t", OPTIONS) as client:
        client.bulk_insert(rows)
    command = [sys.executable, "-m", "strandline", "read", str(tmp_path / "t"), "--output", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline().startswith(b'"_hoodie_commit_time"')
        child.stdout.close()
        assert child.wait(PROCESS_S) == 1
        assert child.stderr.read() == b""
