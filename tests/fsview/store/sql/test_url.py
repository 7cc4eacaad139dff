"""URLs of databases, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsview.store.sql.url import check_url, open_database
from fsview.store.stores import StoreOptions, Stores
from timeline.errors import ConfigError, StoreError

SECRET = "s3cr3t"


@pytest.mark.parametrize("slashes", ["", "/"])
def test_a_file_of_sqlite_by_its_whole_path(slashes: str, tmp_path: Path) -> None:
    place = tmp_path / "a directory" / "views.db"
    database = open_database(f"sqlite://{slashes}{place}")
    assert database.name == str(place)
    assert place.exists()
    database.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgresql://db",
        "postgresql:///views",
        "postgres://me@db:5432/views?sslmode=require",
        f"postgresql://me:{SECRET}@db,[::1]:5433/views?target_session_attrs=read-write",
    ],
)
def test_urls_of_postgresql(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", r"is \*\*\*"),
        (SECRET, r"is \*\*\*"),
        (f"mysql://me:{SECRET}@db/views", "begins with 'mysql'"),
        (f"me:{SECRET}@db/views", r"is \*\*\*"),
        ("sqlite://views.db", "sqlite without the whole path"),
        ("sqlite:///", "sqlite without the whole path"),
        ("sqlite:///directory/", "sqlite without the whole path"),
        ("sqlite:views.db", r"is \*\*\*"),
        *((f"sqlite:///views.db{end}", "has a path with ','") for end in (",", "?x=y", "#", " ")),
        ("sqlite:///a.db,b.db", "has a path with ','"),
        ("sqlite:///:memory:", "or :memory:"),
        (f"postgresql://me:{SECRET}/more@db/views", "postgresql can't be read"),
        (f"postgresql://me:@{SECRET}@db/views", "postgresql can't be read"),
        (f"postgresql://me:#{SECRET}@db/views", "postgresql can't be read"),
        (f"postgresql://me:{SECRET}", "postgresql can't be read"),
        (f"postgresql://db:5432:{SECRET}/views", "postgresql can't be read"),
        (f"postgresql://db/views?password={SECRET}@x", "postgresql can't be read"),
    ],
)
def test_a_bad_url_is_refused_without_showing_it(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        StoreOptions("sql", urls=(url,))
    assert "allowed: sqlite:///PATH" in str(caught.value)
    assert SECRET not in repr(caught.value)
    assert len(str(caught.value)) < 250


def test_options_and_status_show_no_password(tmp_path: Path) -> None:
    shown = repr(StoreOptions("sql", urls=(f"postgresql://me:{SECRET}@db/views",)))
    assert SECRET not in shown
    stores = Stores(StoreOptions("sql", urls=(f"sqlite://{tmp_path}/views.db",)))
    assert stores.status()["databases"] == [f"{tmp_path}/views.db"]
    stores.close()


def test_a_file_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreError, match=f"{tmp_path}/taken/views.db"):
        Stores(StoreOptions("sql", urls=(f"sqlite://{tmp_path}/taken/views.db",)))
