"""``tables.toml``: names of tables; who else may read it; every mistake is named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.cli.tables_file import NamedTable, named_tables, tables_file
from timeline.errors import ConfigError

KEYS = '[trips]\npath = "s3://lake/trips"\n[trips.storage_options]\nsecret = "hidden"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tables.toml"


def test_it_lies_where_the_desktop_standard_says():
    assert tables_file({"XDG_CONFIG_HOME": "/c"}) == Path("/c/strandline/tables.toml")
    home = Path.home() / ".config/strandline/tables.toml"
    assert tables_file({}) == tables_file({"XDG_CONFIG_HOME": ""}) == home


def test_tables_have_what_opening_them_needs(file):
    file.write_text(f'{KEYS}["ö"]\npath = "/t"\nservice = "http://a:1"\ntoken_file = "/k"\n')
    file.chmod(0o600)
    found = named_tables(file)
    assert found == {
        "trips": NamedTable("s3://lake/trips", {"secret": "hidden"}),
        "ö": NamedTable("/t", {}, "http://a:1", "/k"),
    }
    assert "hidden" not in repr(found)
    assert named_tables(file.parent / "none.toml") == {}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_with_keys_it_is_refused_if_others_may_read_it(file, mode):
    file.write_text(KEYS)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o} lets other users read") as raised:
        named_tables(file)
    assert f"chmod 600 {file}" in str(raised.value)
    assert "hidden" not in str(raised.value)
    file.write_text('[t]\npath = "/t"\n')
    assert named_tables(file) == {"t": NamedTable("/t")}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[a\n", "isn't TOML: .*line 1"),
        ('a = "/t"', "a in .* is no section"),
        ("[a]", "has no path"),
        ('[a]\npath = ""', "path in .* is of type str; allowed: text that is not empty"),
        ('[a]\npath = "/t"\nservce = "x"', "has no key 'servce' .the nearest is service"),
        ('[a]\npath = "/t"\nzzz = 1', "has no key 'zzz' .allowed: path, storage_options"),
        ('[a]\npath = "/t"\nstorage_options = "k"', "is of type str; allowed: a section"),
        ('[a]\npath = "/t"\ntoken_file = 5', "token_file in .* is of type int"),
        ('[a]\npath = "/t"\ntoken_file = "/k"', "has a token_file and no service"),
    ],
)
def test_mistakes_are_named(file, text, match):
    file.write_text(text)
    with pytest.raises(ConfigError, match=match) as raised:
        named_tables(file)
    assert str(file) in str(raised.value)


def test_what_can_not_be_read_is_named(file):
    file.mkdir()
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        named_tables(file)
    file.rmdir()
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="isn't TOML"):
        named_tables(file)
