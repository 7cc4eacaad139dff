"""TABLE and its options: names, tokens, storage options, times; what is said where no table is."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click
import fsspec
import pytest
from click.testing import CliRunner, Result

from strandline.__main__ import main
from strandline.cli.common_options import (
    TableSource,
    as_of_option,
    columns_option,
    limit_option,
    table_command,
)
from tests.kit.tables import golden
from timeline.errors import ConfigError, TableNotFoundError

NAMES = """
[trips]
path = "s3://lake/trips"
service = "http://a:1"
token_file = "~/token"
[trips.storage_options]
key = "k"
anon = false
[near]
path = "~/near"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a file of tables, and a token."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "c"))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "c" / "strandline" / "tables.toml"
    file.parent.mkdir(parents=True)
    file.write_text(NAMES)
    file.chmod(0o600)
    (tmp_path / "token").write_text("secret\n")
    return tmp_path


def parsed(*arguments: str) -> dict[str, Any]:
    """Return what a command of tables gets."""
    got: dict[str, Any] = {}

    @click.command()
    @table_command
    @as_of_option
    @limit_option
    @columns_option
    def command(**values: Any) -> None:
        got.update(values)

    command.main([*arguments], standalone_mode=False)
    return got


def test_a_path_or_url_is_itself(home):
    for place in ("/lake/t", "s3://lake/t", "./trips", "sub/trips"):
        assert parsed(place)["source"] == TableSource(place)


def test_a_name_has_what_the_file_says_and_options_go_first(home):
    options = {"key": "k", "anon": False}
    named = TableSource("s3://lake/trips", options, "http://a:1", "secret")
    assert parsed("trips")["source"] == named
    (home / "other").write_text("second")
    given = ("--storage-option", "key=q", "--service", "http://b:1", "--token-file", "~/other")
    own = TableSource("s3://lake/trips", {**options, "key": "q"}, "http://b:1", "second")
    assert parsed("trips", *given)["source"] == own
    assert parsed("near")["source"].path == str(home / "near")
    assert "secret" not in repr(named)
    assert "anon" not in repr(named)


def test_the_token_of_the_file_goes_to_the_service_of_the_file_alone(home):
    other = parsed("trips", "--service", "http://b:1")["source"]
    assert (other.service, other.token) == ("http://b:1", None)
    assert parsed("trips", "--service", "http://a:1")["source"].token == "secret"


def test_values_of_storage_options_are_json_or_text(home):
    given = {
        "anon=true": True,
        "x=null": None,
        "key=123": "123",
        "p=a=b": "a=b",
        'client_kwargs={"endpoint_url": "http://a:1"}': {"endpoint_url": "http://a:1"},
        "l=[1]": [1],
        "empty=": "",
    }
    arguments = [part for option in given for part in ("--storage-option", option)]
    source = parsed("/t", *arguments)["source"]
    assert dict(source.storage_options) == {k.partition("=")[0]: v for k, v in given.items()}


def test_columns_are_separated_by_commas(home):
    got = parsed("/t", "--columns", "a, b,c", "--limit", "3", "--output", "csv")
    assert (got["columns"], got["limit"], got["output"]) == (("a", "b", "c"), 3, "csv")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--storage-option", "hidden"], "allowed: KEY=VALUE"),
        (["--storage-option", "a={hidden"], "the value of a begins like JSON, and isn't"),
        (["--columns", ","], "there is no name"),
        (["--columns", "a,b,a"], "'a' is named twice"),
        (["--limit", "-1"], "-1 is not in the range"),
    ],
)
def test_bad_values_are_refused_and_secrets_not_shown(home, arguments, match):
    with pytest.raises(click.UsageError) as raised:
        parsed("/t", *arguments)
    assert match in raised.value.format_message()
    assert "hidden" not in raised.value.format_message()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_arrow_on_a_terminal_is_refused_before_the_command_runs(home):
    with (
        redirect_stdout(Terminal()),
        pytest.raises(ConfigError, match="--output is arrow, which is binary"),
    ):
        parsed("/t", "--output", "arrow")
    assert parsed("/t", "--output", "arrow")["output"] == "arrow"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture
def lake(home: Path) -> Path:
    """A folder with the table ``orders``."""
    golden.build("cow_basic_v9", golden.steps("cow_basic_v9")[0], home / "lake" / "orders")
    return home / "lake"


@pytest.mark.parametrize(
    ("place", "match"),
    [
        ("lake", "no table at lake: it has no .hoodie/hoodie.properties (tables below it: orders;"),
        ("{home}/lake/order", "there is no folder {home}/lake/order; the nearest is 'orders'"),
        ("{home}/lake/orders/eu", "it is inside the table {home}/lake/orders"),
        ("trip", "no name 'trip' in {home}/c/strandline/tables.toml; the nearest is 'trips'"),
        ("{home}/none/at/all", "no table at {home}/none/at/all"),
        ("file:{home}/lake", "tables below it: orders"),
    ],
)
def test_where_no_table_is_what_was_looked_for_and_what_is_near(lake, place, match):
    done = run("pins", place.format(home=lake.parent))
    assert (done.exit_code, done.stdout) == (2, "")
    assert match.format(home=lake.parent) in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_bucket_is_not_looked_for_among_folders(home):
    place = "memory://bucket-without-tables"
    fsspec.filesystem("memory").pipe("/bucket-without-tables/deep/x", b"")
    with pytest.raises(TableNotFoundError) as raised:
        TableSource(place).open()
    assert "there is no folder" not in str(raised.value)


def test_a_name_of_the_file_goes_before_a_folder(lake):
    file = lake.parent / "c" / "strandline" / "tables.toml"
    file.write_text(f'[orders]\npath = "{lake}/orders"\n')
    assert run("pins", "orders").exit_code == 0
    (lake.parent / "orders").mkdir()
    assert run("pins", "orders").exit_code == 0
    assert run("pins", "./orders").exit_code == 2


def test_a_file_with_keys_that_others_can_read_is_refused(lake):
    file = lake.parent / "c" / "strandline" / "tables.toml"
    file.chmod(0o644)
    done = run("pins", "trips")
    assert done.exit_code == 2
    assert f"run: chmod 600 {file}" in done.stderr
    assert run("pins", lake / "orders").exit_code == 0  # a path doesn't need it


def test_a_token_without_a_service_is_refused(lake):
    done = run("pins", lake / "orders", "--token-file", "~/token")
    assert done.exit_code == 2
    assert "--token-file is given without --service" in done.stderr


def completed(monkeypatch: pytest.MonkeyPatch, words: str) -> list[str]:
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    environment = {"_STRANDLINE_COMPLETE": "bash_complete"}
    done = CliRunner().invoke(main, [], prog_name="strandline", env=environment)
    return done.stdout.splitlines()


def test_names_are_completed_else_paths(home, monkeypatch):
    assert completed(monkeypatch, "strandline pins tr") == ["plain,trips"]
    assert completed(monkeypatch, "strandline pins ./tr") == ["file,./tr"]
    (home / "c" / "strandline" / "tables.toml").write_text("[")
    assert completed(monkeypatch, "strandline pins tr") == ["file,tr"]
