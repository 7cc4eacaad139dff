"""The verbs of a table's metadata print what ``Table`` returns, on every table that Hudi wrote."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from strandline import Table
from strandline.__main__ import main
from strandline.cli.output import FORMATS
from tests.kit.concurrency.patience import PROCESS_S
from tests.kit.servers.live_service import TOKEN, serving
from tests.kit.tables import golden
from tests.kit.tables.reader import contents
from tests.strandline.write.tables import client, row, table
from timeline.errors import StorageUnavailableError
from timeline.storage.local import LocalStorage

VERBS: dict[tuple[str, ...], Callable[[Table], pa.Table]] = {
    ("history",): lambda t: t.history(),
    ("files",): lambda t: t.files(),
    ("slices",): lambda t: t.slices(),
    ("partitions",): lambda t: t.partitions(),
    ("stats",): lambda t: t.stats(),
    ("inspect", "instants"): lambda t: t.inspect.instants(),
    ("inspect", "instants", "--archived"): lambda t: t.inspect.instants(archived=True),
    ("inspect", "log-files"): lambda t: t.inspect.log_files(),
    ("inspect", "markers"): lambda t: t.inspect.markers(),
    ("inspect", "metadata-table"): lambda t: t.inspect.metadata_table(),
    ("inspect", "pending"): lambda t: t.inspect.pending(),
    ("inspect", "replaced"): lambda t: t.inspect.replaced(),
}


def run(verb: str, base: object, *arguments: object) -> Result:
    return CliRunner().invoke(main, [verb, str(base), *map(str, arguments)])


def printed(verb: str, base: object, *arguments: object) -> Result:
    done = run(verb, base, *arguments)
    assert done.exit_code == 0, done.stderr
    return done


@pytest.mark.property
@pytest.mark.parametrize("scenario", golden.scenarios())
def test_verbs_print_what_table_returns_and_change_no_byte(scenario, tmp_path):
    root = tmp_path / "root"
    base = golden.build(scenario, golden.steps(scenario)[-1], root / "t")
    before = contents(base)
    found = Table(base)
    for (verb, *arguments), method in VERBS.items():
        done = printed(verb, base, *arguments, "--output", "arrow")
        assert pa.ipc.open_stream(done.stdout_bytes).read_all().equals(method(found)), verb
    instants = found.history().to_pylist()
    commits = [i["requested_time"] for i in instants if i["operation"]]
    for instant in commits[-1:]:
        shown = json.loads(printed("commit", base, instant, "--output", "json").stdout)
        total = found.commit_metadata(instant).total
        assert sum(each["bytes_written"] for each in shown["partitions"]) == total.bytes_written
        assert shown["requested_time"] == instant
    columns = json.loads(printed("schema", base, "--output", "json").stdout)["schema"]
    assert [(each["column"], each["type"]) for each in columns] == [
        (field.name, str(field.type)) for field in found.schema()
    ]
    lines = printed("properties", base, "--output", "jsonl").stdout.splitlines()
    pairs = [json.loads(line) for line in lines]
    assert {each["name"]: each["value"] for each in pairs} == dict(found.properties)
    listed = json.loads(printed("tables", root, "--output", "json").stdout)["tables"]
    assert [each for each in listed if each["path"] == str(base)] == [
        {
            "path": str(base),
            "name": found.config.name,
            "type": found.config.table_type,
            "version": found.config.version,
            "problem": None,
        }
    ]
    assert contents(base) == before


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two partitions and three commits."""
    base = tmp_path_factory.mktemp("written") / "t"
    with client(base, clean__automatic="false") as c:
        c.upsert(table(row("a", ts=0), row("b", "us", ts=0)))
        c.upsert(table(row("a", ts=1)), extra_metadata={"offset": "7"})
        c.upsert(table(row("a", ts=2)))
    return base


def instants(base: Path) -> list[str]:
    times: list[str] = Table(base).history()["requested_time"].to_pylist()
    return times


@pytest.mark.parametrize("verb", ["history", "files", "slices", "partitions", "stats", "schema"])
def test_every_form_has_the_same_rows(written, verb):
    done = {form: printed(verb, written, "--output", form) for form in FORMATS}
    rows = [json.loads(line) for line in done["jsonl"].stdout.splitlines()]
    assert rows
    assert list(json.loads(done["json"].stdout).values()) == [rows]
    head, *lines = csv.reader(io.StringIO(done["csv"].stdout))
    assert head == list(rows[0])
    assert len(lines) == len(rows)
    assert pa.ipc.open_stream(done["arrow"].stdout_bytes).read_all().num_rows == len(rows)
    shown = done["table"].stdout.splitlines()
    assert set(shown[0].split()) <= set(rows[0])
    assert len(shown) == 1 + len(rows)
    if verb != "stats":
        assert re.match(rf"{len(rows)} \w+\n", done["table"].stderr)


def test_columns_and_limit_are_of_every_form(written):
    chosen = ("--columns", "size,path", "--limit", "1", "--output", "csv")
    head, line = printed("files", written, *chosen).stdout.splitlines()
    assert head == '"size","path"'
    assert re.fullmatch(r'\d+,"eu/.*\.parquet"', line)
    assert printed("files", written, *chosen).stderr == "1 slice of 2\n"


def test_history_has_the_newest_and_those_since(written):
    first, second, third = instants(written)

    def shown(*arguments: str) -> list[str]:
        only = ("--columns", "requested_time", "--output", "csv")
        lines = printed("history", written, *only, *arguments).stdout.splitlines()
        return [line.strip('"') for line in lines[1:]]

    assert shown("--limit", "2") == [second, third]
    assert shown("--limit", "0") == []
    assert shown("--since", second) == [second, third]
    at = Table(written).history()["requested_at"].to_pylist()[1].isoformat()
    assert shown("--since", at) == [second, third]
    assert shown("--since", at.replace("+00:00", "Z"), "--limit", "1") == [third]
    assert shown("--since", at.replace("+00:00", "")) == [second, third]  # in the table's zone
    assert shown("--since", first[:14]) == [first, second, third]
    assert shown("--until", second) == [first, second]
    assert shown("--until", at, "--limit", "1") == [second]
    assert shown("--since", second, "--until", second) == [second]
    assert shown("--until", third[:14])[-1] == third
    assert third in shown("--since", third[:14], "--until", third[:14])


def test_a_commit_is_the_newest_or_the_given_one(written):
    _, second, third = instants(written)
    newest = printed("commit", written)
    assert f"commit {third} (UPSERT): 1 file, " in newest.stderr
    assert newest.stderr.endswith("0 rows inserted, 1 updated, 0 deleted\n")
    shown = json.loads(printed("commit", written, second, "--output", "json").stdout)
    assert shown["extra_metadata"]["offset"] == "7"
    assert [each["partition"] for each in shown["partitions"]] == ["eu"]


def test_a_replacing_commit_names_the_groups_that_it_replaced(tmp_path):
    with client(tmp_path / "t") as c:
        c.upsert(table(row("a", ts=0), row("b", "us", ts=0)))
        c.delete_partition(["us"])
    replaced = json.loads(printed("commit", tmp_path / "t", "--output", "json").stdout)
    (each,) = replaced["partitions"]
    assert (each["partition"], each["files_written"]) == ("us", 0)
    groups = Table(tmp_path / "t").inspect.replaced()["file_id"].to_pylist()
    assert each["replaced_file_ids"] == groups


@pytest.mark.parametrize("verb", ["files", "slices", "partitions", "stats", "schema"])
def test_as_of_is_an_earlier_state(written, verb):
    first, _, third = instants(written)
    form = ("--output", "jsonl")
    then = printed(verb, written, "--as-of", first, *form).stdout
    now = printed(verb, written, *form).stdout
    assert printed(verb, written, "--as-of", third, *form).stdout == now
    assert verb not in ("files", "slices") or then != now
    assert len(then.splitlines()) == len(now.splitlines()) - (2 if verb == "slices" else 0)
    early = run(verb, written, "--as-of", "2001-01-01T00:00:00Z")
    assert early.exit_code == 2
    assert "the earliest instant" in early.stderr


def test_files_of_one_partition_are_those_of_table(written):
    first = instants(written)[0]
    found = Table(written)
    of = {"as_of": first}
    (then,) = found.files("eu", as_of=first).to_pylist()
    assert then["base_instant"] == first
    assert found.files("none", as_of=first).num_rows == 0
    assert found.files(**of).num_rows == found.partitions(**of).num_rows == 2
    shown = printed("files", written, "--partition", "eu", "--as-of", first, "--output", "json")
    assert [each["path"] for each in json.loads(shown.stdout)["files"]] == [then["path"]]
    slices = printed("slices", written, "--partition", "eu", "--output", "json")
    assert len(json.loads(slices.stdout)["slices"]) == 3


@pytest.mark.parametrize("verb", ["files", "slices", "partitions", "stats"])
@pytest.mark.parametrize("as_of", [(), ("--as-of", "2100-01-01")])
def test_a_filter_leaves_the_partitions_that_may_have_its_rows(written, verb, as_of):
    def rows(*arguments: str) -> list[Any]:
        lines = printed(verb, written, *as_of, *arguments, "--output", "jsonl").stdout.splitlines()
        return [each for each in map(json.loads, lines) if each["partition"] is not None]

    every = rows()
    eu = [each for each in every if each["partition"] == "eu"]
    assert 0 < len(eu) < len(every)
    assert rows("--filter", "region = 'eu'") == rows("--filter", "region < 'f'") == eu
    assert rows("--filter", "not region = 'us' and region is not null") == eu
    assert rows("--filter", "_hoodie_partition_path like 'e%'") == eu
    assert rows("--filter", "region = 'none'") == []
    assert rows("--filter", "region = 'eu' or region = 'us'") == every


def test_a_filter_goes_with_a_partition(written):
    found = Table(written)
    assert found.files("eu", filter="region = 'eu'").equals(found.files("eu"))
    assert found.slices("eu", filter="region = 'us'").num_rows == 0


def test_a_filter_is_answered_by_a_service(written):
    with serving(str(written.parent)) as server:
        served = Table(written, service=f"http://127.0.0.1:{server.port}", token=TOKEN)
        for of in ("files", "slices", "partitions", "stats"):
            found = getattr(served, of)(filter="region = 'eu'")
            assert found.equals(getattr(Table(written), of)(filter="region = 'eu'"))
        assert len(server.parts.views.open_tables()) == 1


def test_properties_are_shown_in_the_order_of_their_names(written):
    names = ("hoodie.table.type", "hoodie.table.name")
    done = printed("properties", written, *names, "--output", "csv")
    assert done.stdout.splitlines() == [
        '"name","value"',
        '"hoodie.table.type","COPY_ON_WRITE"',
        f'"hoodie.table.name","{Table(written).config.name}"',
    ]
    assert done.stderr == "2 properties\n"


@pytest.mark.parametrize(
    ("verb", "arguments", "match"),
    [
        ("files", ["--partition", "EU"], "the table has no partition 'EU' (the nearest is 'eu')"),
        ("slices", ["--partition", "zzzz"], "no partition 'zzzz' (it has 2 partitions)"),
        ("files", ["--partition", "../x"], "'../x'"),
        ("files", ["--columns", "pth"], "there is no column 'pth'; the nearest is 'path'"),
        ("commit", ["20200101000000000"], "(the nearest commit is {first})"),
        ("commit", ["zzz"], "(the nearest commit is {third})"),
        ("properties", ["hoodie.table.nam"], "(the nearest is hoodie.table.name)"),
        ("properties", ["zzzz"], "the table has no property 'zzzz'"),
        ("inspect", ["instant"], "'instant' is not one of 'instants'"),
        ("inspect", ["pending", "--archived"], "--archived is given with pending"),
        ("inspect", ["pending", "--partition", "eu"], "--partition is given with pending"),
        ("history", ["--since", "yesterday"], "since is 'yesterday'"),
        ("history", ["--since", "2026", "--until", "x"], "since is '2026'"),
        ("history", ["--since", "2026-01-02", "--until", "2026-01-01"], "which is after until"),
        ("history", ["--limt", "1"], "'--limit'"),
        ("files", ["--filter", "name = 'a'"], "is on name, which the paths of partitions don't"),
        ("slices", ["--filter", "region = 'eu' or ts > 1"], "is on ts, which"),
        ("stats", ["--filter", "regoin = 'eu'"], "(did you mean 'region'?)"),
        ("partitions", ["--filter", "region ="], "filter"),
        ("stats", ["--as-of", "2100-01-01", "--filter", "ts > 1"], "is on ts, which"),
        ("history", ["--as-of", "1"], "history takes no --as-of: it has all instants; --since"),
        ("files", ["--output", "parquet"], "'parquet' is not one of"),
        ("files", ["--service", "ftp://x"], "ftp://x"),
    ],
)
def test_bad_input_names_what_is_allowed_or_near(written, verb, arguments, match):
    first, _, third = instants(written)
    done = run(verb, written, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert match.format(first=first, third=third) in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_empty_table_has_no_rows_and_no_commit(tmp_path):
    with client(tmp_path / "t") as c:
        c.upsert(table(row("a", ts=0)))
    for path in (tmp_path / "t" / ".hoodie" / "timeline").iterdir():
        if path.is_file():
            path.unlink()
    assert printed("history", tmp_path / "t").stderr == "0 instants\n"
    assert printed("files", tmp_path / "t").stdout == ""
    stats = json.loads(printed("stats", tmp_path / "t", "--output", "jsonl").stdout.split("\n")[0])
    assert (stats["file_groups"], stats["smallest"]) == (0, None)
    done = run("commit", tmp_path / "t")
    assert done.exit_code == 2
    assert "has no completed commit" in done.stderr


HOSTILE = "x\x1b[31m\x9by"


def test_names_with_control_characters_reach_no_terminal(tmp_path):
    with client(tmp_path / "t") as c:
        c.upsert(table(row("a", HOSTILE)))
    shown = printed("partitions", tmp_path / "t").stdout
    assert "x\\x1b[31m\\x9by" in shown
    assert not set(shown) & set("\x1b\x9b")
    rows = printed("partitions", tmp_path / "t", "--output", "jsonl").stdout
    assert json.loads(rows)["partition"] == HOSTILE
    assert not set(rows) & set("\x1b\x9b")


def test_files_are_asked_of_a_service(written, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    form = ("--output", "csv")
    with serving(str(written.parent)) as server:
        url = f"http://127.0.0.1:{server.port}"
        done = printed("files", written, "--service", url, "--token-file", token, *form)
        assert len(server.parts.views.open_tables()) == 1
    assert done.stdout == printed("files", written, *form).stdout


def rows_of(base: Path, *arguments: object) -> list[Any]:
    return [
        json.loads(line)
        for line in printed("tables", base, *arguments, "--output", "jsonl").stdout.splitlines()
    ]


def test_tables_are_found_below_a_root(written, tmp_path):
    deep = tmp_path / "a" / "b" / "c"
    (deep / ".hoodie").mkdir(parents=True)
    (deep / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=broken\n")
    hidden = tmp_path / ".trash" / "t" / ".hoodie"
    hidden.mkdir(parents=True)
    (hidden / "hoodie.properties").write_text("")
    (broken,) = rows_of(tmp_path)
    assert broken["path"] == str(deep)
    assert "hoodie.table.version" in broken["problem"]
    assert rows_of(tmp_path, "--depth", 2) == []
    assert [each["path"] for each in rows_of(written)] == [str(written)]
    assert [each["path"] for each in rows_of(written.parent, "--depth", 1)] == [str(written)]
    none = run("tables", tmp_path / "none")
    assert none.exit_code == 2
    assert f"there is no folder {tmp_path / 'none'}" in none.stderr


def test_a_broken_table_has_its_problem_and_the_exit_code_is_that_of_success(tmp_path):
    (tmp_path / "t" / ".hoodie").mkdir(parents=True)
    (tmp_path / "t" / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=broken\n")
    done = run("tables", tmp_path, "--output", "jsonl")
    assert (done.exit_code, done.stderr) == (0, "1 table\n")
    assert "hoodie.table.version" in json.loads(done.stdout)["problem"]


def test_a_root_whose_name_is_not_utf8_has_escapes(written, tmp_path):
    """In the path, and where the problem of a broken table names it."""
    root = tmp_path / os.fsdecode(b"b\xff")
    shutil.copytree(written / ".hoodie", root / ".hoodie")
    (row,) = rows_of(root)
    assert (row["path"], row["problem"]) == (f"{tmp_path}/b\\udcff", None)
    (root / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=broken\n")
    (row,) = rows_of(root)
    assert (row["path"], row["name"]) == (f"{tmp_path}/b\\udcff", None)
    assert f"{tmp_path}/b\\udcff" in row["problem"]


@pytest.mark.parametrize("method", ["stat", "list"])
def test_a_folder_that_can_not_be_read_does_not_hide_tables(written, tmp_path, monkeypatch, method):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    for name in ("a", "c"):
        shutil.copytree(written / ".hoodie", tmp_path / name / ".hoodie")
    plain = getattr(LocalStorage, method)

    def refusing(self: LocalStorage, path: str, *more: object) -> object:
        if path.startswith("b"):
            raise StorageUnavailableError("b: Permission denied")
        return plain(self, path, *more)

    monkeypatch.setattr(LocalStorage, method, refusing)
    done = run("tables", tmp_path, "--output", "jsonl")
    rows = map(json.loads, done.stdout.splitlines())
    found = [(Path(each["path"]).name, each["problem"]) for each in rows]
    assert found == [("a", None), ("b", "b: Permission denied"), ("c", None)]
    assert (done.exit_code, done.stderr) == (1, "3 tables\nError: b: Permission denied\n")


@pytest.mark.parametrize("form", ["json", "table"])
def test_a_storage_that_fails_on_the_way_ends_the_search_of_tables(
    written, tmp_path, monkeypatch, form
):
    for name in ("a", "b", "c"):
        shutil.copytree(written / ".hoodie", tmp_path / name / ".hoodie")
    plain, asked = (LocalStorage.stat, LocalStorage.check_base), []

    def failing(self: LocalStorage, path: str) -> object:
        asked.append(path)
        check(self)
        return plain[0](self, path)

    def check(self: LocalStorage) -> None:
        if any(each.startswith("b") for each in asked):
            raise StorageUnavailableError("the endpoint is gone")
        plain[1](self)

    monkeypatch.setattr(LocalStorage, "stat", failing)
    monkeypatch.setattr(LocalStorage, "check_base", check)
    done = run("tables", tmp_path, "--output", form)
    assert (done.exit_code, done.stderr) == (1, "2 tables\nError: the endpoint is gone\n")
    assert str(tmp_path / "a") in done.stdout
    assert str(tmp_path / "c") not in done.stdout
    if form == "json":
        assert [each["name"] for each in json.loads(done.stdout)["tables"]] == ["t", None]
    assert not any(path.startswith("c") for path in asked)


@pytest.mark.property
def test_two_processes_at_once_print_the_same(written):
    command = [sys.executable, "-m", "strandline", "files", str(written), "--output", "arrow"]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, stdout=pipe, stderr=pipe) for _ in range(2)]
    (first, said), (second, _) = [each.communicate(timeout=PROCESS_S) for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert first == second
    assert pa.ipc.open_stream(first).read_all().equals(Table(written).files())
    assert said == b"2 slices\n"


@pytest.mark.property
def test_a_reader_that_leaves_ends_the_command_silently(written):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "strandline", "slices", str(written), "--output", "arrow"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=PROCESS_S)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")
