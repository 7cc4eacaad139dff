"""Several databases: which has a table, that servers agree on it, and one that is away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fsview.store.sql.database_ring import DatabaseRing, Databases
from fsview.store.sql.url import database_name, open_database, split_urls
from fsview.store.stores import StoreOptions, Stores
from tests.kit.servers.stores import blobs_of
from timeline.errors import ConfigError, StoreError
from timeline.storage.table_id import TableId

TABLES = [TableId.of(f"s3://lake/t{n}") for n in range(400)]
SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("", []),
        ("sqlite:///a.db", ["sqlite:///a.db"]),
        ("sqlite:///a.db,sqlite:///b.db", ["sqlite:///a.db", "sqlite:///b.db"]),
        ("postgresql://a,b/v, postgres://c/v", ["postgresql://a,b/v", "postgres://c/v"]),
        (
            "postgresql://me:a,b@h:1,h2/v,sqlite:///c,d",
            ["postgresql://me:a,b@h:1,h2/v", "sqlite:///c,d"],
        ),
        (",sqlite:///a.db", ["", "sqlite:///a.db"]),
    ],
)
def test_a_list_is_split_where_a_url_begins(text: str, urls: list[str]) -> None:
    assert list(split_urls(text)) == urls


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:///var/views.db", "sqlite:///var/views.db"),
        ("sqlite:////var/./x/../views.db", "sqlite:///var/views.db"),
        ("postgresql://h/v", "postgresql://h:5432/v"),
        (f"postgres://me:{SECRET}@B:1,a/v?sslmode=require", "postgresql://a:5432,b:1/v"),
        (f"postgresql://me:{SECRET}@a,b:1/v", "postgresql://a:5432,b:1/v"),
        ("postgresql://[::1]:7/a%20b", "postgresql://[::1]:7/a b"),
        ("postgresql:///v?host=/run/pg&port=7", "postgresql:///run/pg:7/v"),
        ("postgresql://a,b/v?port=7&dbname=w", "postgresql://a:7,b:7/w"),
        ("postgresql:///v", "postgresql://localhost:5432/v"),
    ],
)
def test_a_database_has_one_name_whoever_connects_to_it(url: str, name: str) -> None:
    assert database_name(url) == name


def test_each_table_has_one_database_whatever_the_order_and_the_password() -> None:
    one = DatabaseRing([f"postgresql://db{n}/views" for n in range(4)])
    other = DatabaseRing([f"postgres://me:{SECRET}@DB{n}:5432/views" for n in (2, 0, 3, 1)])
    assert one.text == other.text
    assert [one.name_of(table) for table in TABLES] == [other.name_of(table) for table in TABLES]
    shares = Counter(map(one.name_of, TABLES))
    assert len(shares) == 4
    assert max(shares.values()) < 1.5 * len(TABLES) / 4
    assert SECRET in other.url_of(TABLES[0])


def test_a_further_database_takes_tables_and_moves_no_others() -> None:
    urls = [f"postgresql://db{n}/views" for n in range(4)]
    before, after = DatabaseRing(urls[:3]), DatabaseRing(urls)
    moved = [table for table in TABLES if before.name_of(table) != after.name_of(table)]
    assert {after.url_of(table) for table in moved} == {urls[3]}
    assert 0.5 * len(TABLES) / 4 < len(moved) < 1.5 * len(TABLES) / 4


def test_a_database_that_is_given_twice_is_refused() -> None:
    urls = (f"postgresql://me:{SECRET}@a,b/v", "postgres://b,a:5432/v")
    with pytest.raises(ConfigError, match="name postgresql://a:5432,b:5432/v twice") as refused:
        StoreOptions("sql", urls=urls)
    assert SECRET not in str(refused.value)


def urls_in(directory: Path, names: str) -> list[str]:
    return [f"sqlite://{directory}/{name}.db" for name in names]


def test_servers_with_other_databases_are_refused_by_name(tmp_path: Path) -> None:
    a, b, c = urls_in(tmp_path, "abc")
    Databases(DatabaseRing([a, b])).close()
    Databases(DatabaseRing([b, a])).close()
    for others in ([a], [b, c], [a, b, c]):
        with pytest.raises(
            StoreError, match=r"[ab]\.db is for servers with the databases .*a\.db, .*b\.db, this"
        ) as refused:
            Databases(DatabaseRing(others))
        assert "fleet spread" in str(refused.value)
    Databases(DatabaseRing([a, b])).close()


def test_a_database_that_was_alone_is_refused_among_others(tmp_path: Path) -> None:
    a, b = urls_in(tmp_path, "ab")
    for _ in range(2):
        Databases(DatabaseRing([a])).close()
    with pytest.raises(
        StoreError, match=r"a\.db is for servers with one database, this one has the databases"
    ):
        Databases(DatabaseRing([a, b]))
    for url in (a, b):
        database = open_database(url)
        database.spread(DatabaseRing([a, b]).text)
        database.close()
    Databases(DatabaseRing([a, b])).close()
    with pytest.raises(StoreError, match="this one has one database"):
        Databases(DatabaseRing([a]))


def test_the_names_of_a_single_database_do_not_count(tmp_path: Path) -> None:
    (a,) = urls_in(tmp_path, "a")
    (tmp_path / "link").symlink_to(tmp_path)
    Databases(DatabaseRing([a])).close()
    Databases(DatabaseRing(urls_in(tmp_path / "link", "a"))).close()


def test_tables_lie_in_their_databases(tmp_path: Path) -> None:
    urls = urls_in(tmp_path, "ab")
    ring = DatabaseRing(urls)
    stores = Stores(StoreOptions("sql", urls=(urls[1], urls[0])))
    for table in TABLES[:10]:
        stores.open(table).commit(blobs_of([b"1"]), lambda _: {"a": b"1"})
    assert sorted(stores.status()["databases"]) == [f"{tmp_path}/a.db", f"{tmp_path}/b.db"]
    stores.close()
    assert len({ring.name_of(table) for table in TABLES[:10]}) == 2
    for table in TABLES[:10]:
        for url in urls:
            database = open_database(url, ring=ring.text)
            with database.reading(table) as session:
                assert (session.head() is not None) == (url == ring.url_of(table))
            database.close()
