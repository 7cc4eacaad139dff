"""``strandline fleet``: what it shows of a fleet, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from executor_proxy.seat_ring import Layout, owners
from fsview.store.sql.database_ring import DatabaseRing
from fsview.store.sql.sqlite.database import SqliteDatabase
from fsview.store.sql.store import SharedStore
from fsview.store.stores import StoreOptions, Stores
from strandline.__main__ import main
from strandline.fleet.records import (
    EPOCH,
    Load,
    member_bytes,
    member_key,
    read_fleet,
    roots_mark,
    seat_bytes,
    token_mark,
)
from strandline.fleet.roster import Roster
from strandline.fleet.seats import HeldSeat, Member
from strandline.fleet.state.base import Put
from strandline.fleet.state.sqlite import SqliteState
from strandline.fleet.state.url import NAME_KEY, open_state
from strandline.fleet.table_servers import servers_of
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.stores import blobs_of
from timeline.errors import ConfigError, StoreError
from timeline.storage.table_id import TableId

LAYOUT = Layout(copies=2, tokens=50)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["fleet", *arguments], prog_name="strandline")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


@pytest.fixture
def rosters(path: Path) -> Iterator[dict[str, Roster]]:
    """Servers ``a`` and ``b`` with a seat, a third seat that is vacant, and a standby."""
    with closing(SqliteState(path)) as state:
        made = {
            name: Roster(
                state,
                f"http://{name}:1",
                is_standby=name == "s",
                layout=LAYOUT,
                clock=ManualClock(0),
                load=lambda name=name: Load(3, 25_000_000) if name == "a" else Load(),
            )
            for name in "abcs"
        }
        for name in "abc":
            made[name].join()
        made["a"].step()
        made["c"].leave()
        yield made


def test_members_seats_and_leader_are_shown(path: Path, rosters: dict[str, Roster]) -> None:
    told = run("status", f"sqlite://{path}")
    assert told.exit_code == 0
    assert told.output.splitlines() == [
        f"fleet sqlite://{path}, epoch 1: 2 of 3 seats are taken",
        "copies 2, depth 1, tokens 50, roots unknown",
        "",
        "seat  server      tables      MB  role",
        "   0  http://a:1       3      25  leader",
        "   1  http://b:1       0       0",
        "   2  -                           vacant, last http://c:1",
    ]
    rosters["s"].join()
    assert run("status", f"sqlite://{path}").output.splitlines()[-1] == (
        "   -  http://s:1       0       0  standby"
    )


def test_the_mark_of_the_roots_is_shown(path: Path) -> None:
    """And who doesn't tell it, as servers of earlier releases (#32)."""
    lake = roots_mark(["/lake"])
    with closing(SqliteState(path)) as state:
        for name, roots in (("a", []), ("b", ["/lake"]), ("c", ["/lake"])):
            roster = Roster(state, f"http://{name}:1", clock=ManualClock(0), roots=roots)
            roster.join()
            roster.step()
        shown = run("status", f"sqlite://{path}").output.splitlines()
        told = json.loads(run("status", f"sqlite://{path}", "--json").output)
    assert shown[1] == f"copies 3, depth 1, tokens 100, roots {lake}"
    assert [line.partition("0       0")[2].strip() for line in shown[4:]] == [
        "leader, roots unknown",
        "waits",
        "waits",
    ]
    assert told["roots"] == lake
    assert [row["roots"] for row in (*told["seats"], *told["waiting"])] == [None, lake, lake]


def test_marks_of_tokens_are_shown_while_they_differ(path: Path) -> None:
    """As long as some servers of a rotation have the lines of their file swapped, others not."""
    old, new = token_mark("old"), token_mark("new")
    with closing(SqliteState(path)) as state:
        for name in "ab":
            url, clock = f"http://{name}:1", ManualClock(0)
            roster = Roster(state, url, clock=clock, token=old, other_token=new)
            roster.join()
            roster.step()
        alike = run("status", f"sqlite://{path}").output
        roster.use_marks([new, old])
        roster.step()
        shown = run("status", f"sqlite://{path}").output.splitlines()
        told = json.loads(run("status", f"sqlite://{path}", "--json").output)
    assert old not in alike
    assert [line.partition("0       0")[2].strip() for line in shown[4:]] == [
        f"leader, token {old}",
        f"waits, token {new}",
    ]
    assert [row["token"] for row in (*told["seats"], *told["waiting"])] == [old, new]


def test_the_servers_of_a_table_are_those_of_the_ring(
    path: Path, rosters: dict[str, Roster]
) -> None:
    table = "s3://lake/t/"
    told = run("status", f"sqlite://{path}", "--json", "--table", table)
    found = json.loads(told.output)
    # As ``a`` saw it, before ``c`` left.
    placed = owners(rosters["a"].fleet.ring, str(TableId.of(table).normal()), layout=LAYOUT)
    assert found["tables"] == {table: [None if s.number == 2 else s.url for s in placed]}
    assert found["leader"] == "http://a:1"
    assert found["layout"] == {"copies": 2, "depth": 1, "tokens": 50}
    vacant = {"number": 2, "group": "default", "url": None, "last": "http://c:1"}
    assert found["seats"][2] == vacant


def test_a_member_that_may_not_have_the_token_has_no_say_in_where_tables_are(
    path: Path, rosters: dict[str, Roster]
) -> None:
    """It has no seat; the clients that ask here have no token to tell it by."""
    before = servers_of(f"sqlite://{path}", "s3://lake/t")
    stranger = Member("0", "http://x:1", False, 1, Layout(1, 1, 7), token="00000000")
    rosters["a"].state.write(Put(member_key("0"), member_bytes(stranger)))
    assert servers_of(f"sqlite://{path}", "s3://lake/t") == before
    told = json.loads(run("status", f"sqlite://{path}", "--json").output)
    assert told["layout"] == {"copies": 2, "depth": 1, "tokens": 50}


def test_clients_find_a_table_s_servers_in_the_state_store(
    path: Path, rosters: dict[str, Roster]
) -> None:
    del rosters
    found = [servers_of(f"sqlite://{path}", f"s3://lake/{name}") for name in "tuvw"]
    told = json.loads(
        run(
            "status",
            f"sqlite://{path}",
            "--json",
            *(word for name in "tuvw" for word in ("--table", f"s3://lake/{name}")),
        ).output
    )
    for each, urls in zip(found, told["tables"].values(), strict=True):
        having = tuple(filter(None, urls))
        assert each.copies == max(len(having), 1)
        assert each.urls[: len(having)] == having
        assert set(each.urls) == {"http://a:1", "http://b:1"}
    with pytest.raises(ConfigError, match="there is no fleet at"):
        servers_of(f"sqlite://{path}.no", "s3://lake/t")
    assert not path.with_name("fleet.db.no").exists()


@pytest.fixture
def grouped(path: Path) -> Iterator[SqliteState]:
    """Servers ``a`` and ``d`` of the group default, ``b`` of hot, and a router; all have seats."""
    made: list[Roster] = []
    with closing(SqliteState(path)) as state:
        for name, group, roots in (
            ("a", "default", ["/lake"]),
            ("b", "hot", ["/lake/hot"]),
            ("d", "default", ["/lake"]),
            ("r", "", []),
        ):
            url, clock = f"http://{name}:1", ManualClock(0)
            roster = Roster(state, url, clock=clock, group=group, roots=roots)
            roster.join()
            made.append(roster)
        made[0].step()
        yield state


def test_groups_are_shown_with_their_roots(path: Path, grouped: SqliteState) -> None:
    shown = run("status", f"sqlite://{path}").output.splitlines()
    assert shown[1:] == [
        "copies 3, depth 1, tokens 100",
        "group default: seats 2, roots /lake",
        "group hot: seats 1, roots /lake/hot",
        "",
        "seat  server      tables      MB  role",
        "   0  http://a:1       0       0  leader, group default",
        "   1  http://d:1       0       0  group default",
        "   2  http://b:1       0       0  group hot",
        "   -  http://r:1       0       0  router",
    ]


def test_a_server_is_drained(path: Path, grouped: SqliteState) -> None:
    told = run("drain", f"sqlite://{path}", "http://d:1")
    assert (told.exit_code, told.output) == (
        0,
        "http://d:1 gives away seat 1 of the group default\n",
    )
    again = run("drain", f"sqlite://{path}", "http://d:1", "--json")
    assert json.loads(again.output) == {"server": "http://d:1", "seat": 1, "group": "default"}
    refused = run("drain", f"sqlite://{path}", "http://a:1")
    assert refused.exit_code == 2
    assert "'http://a:1' is the last one of the group default" in refused.output
    refused = run("drain", f"sqlite://{path}", "http://r:1")
    assert refused.exit_code == 2
    assert "'http://r:1' has no seat; allowed: http://a:1, http://d:1, http://b:1" in refused.output


def test_paths_are_mounted_on_groups(path: Path, grouped: SqliteState) -> None:
    url = f"sqlite://{path}"
    added = run("mount", "add", url, "file:/lake//hot/a/", "hot", "--depth", "2")
    assert (added.exit_code, added.output) == (
        0,
        "mount /lake/hot/a: group hot, depth 2\nall other tables: group default\n",
    )
    assert run("mount", "add", url, "/lake/hot/b", "hot").exit_code == 0
    listed = json.loads(run("mount", "list", url, "--json").output)
    assert listed == {
        "mounts": [
            {"path": "/lake/hot/a", "group": "hot", "copies": None, "depth": 2},
            {"path": "/lake/hot/b", "group": "hot", "copies": None, "depth": None},
        ]
    }
    assert "mount /lake/hot/a: group hot, depth 2" in run("status", url).output.splitlines()
    told = run("status", url, "--json", "--table", "/lake/hot/a/t", "--table", "/lake/t")
    tables = json.loads(told.output)["tables"]
    assert tables["/lake/hot/a/t"] == ["http://b:1"]
    assert set(tables["/lake/t"]) == {"http://a:1", "http://d:1"}
    assert servers_of(url, "/lake/hot/a/t").urls == ("http://b:1",)
    assert set(servers_of(url, "/lake/hot/c").urls) == {"http://a:1", "http://d:1"}
    removed = run("mount", "remove", url, "/lake/hot/./a/")
    assert removed.exit_code == 0
    assert [line.partition(":")[0] for line in removed.output.splitlines()] == [
        "mount /lake/hot/b",
        "all other tables",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "/lake/hot", "gone"), "the group gone has no server; allowed: default, hot"),
        (("add", "/lake/cold", "hot"), "is outside the roots of the group hot; allowed: at or bel"),
        (("add", "/lake/../hot", "hot"), "has '..'; allowed: names"),
        (("add", "hot", "hot"), "is relative; allowed: a URL, or one from '/' on"),
        (("add", "/lake/hot", "a/b"), "the group is 'a/b'; allowed: 1 to 64 letters"),
        (("add", "/lake/hot", "hot", "--copies", "4"), "strandline.fleet.copies is 4; allowed"),
        (("add", "file:///lake/hot/a", "hot"), "/lake/hot/a is mounted already, on the group hot"),
        (("remove", "/lake/b"), "'/lake/b' isn't mounted; allowed: /lake/hot/a, /lake/hot/b"),
    ],
)
def test_bad_mounts_are_refused_by_name(
    path: Path, grouped: SqliteState, words: tuple[str, ...], said: str
) -> None:
    url = f"sqlite://{path}"
    for name in "ab":
        assert run("mount", "add", url, f"/lake/hot/{name}", "hot").exit_code == 0
    before = read_fleet(grouped)
    told = run("mount", words[0], url, *words[1:])
    assert told.exit_code == 2
    assert said in told.output
    assert read_fleet(grouped) == before


def test_a_mount_needs_servers_that_know_it(path: Path, grouped: SqliteState) -> None:
    record = json.loads(member_bytes(Member("o", "http://old:1", is_standby=False, joined=5)))
    del record["group"]
    grouped.hold(member_key("o"), json.dumps(record).encode(), 3600)
    told = run("mount", "add", f"sqlite://{path}", "/lake/hot", "hot")
    assert told.exit_code == 2
    assert "while the member http://old:1 is of a release without groups" in told.output


def test_a_mount_is_not_removed_if_nobody_would_have_its_tables(
    path: Path, grouped: SqliteState
) -> None:
    url = f"sqlite://{path}"
    Roster(grouped, "http://p:1", clock=ManualClock(0), group="pond", roots=["/pond"]).join()
    grouped.write(Put("seats/9", seat_bytes(HeldSeat(9, ("p",), "http://p:1", "pond"))))
    assert run("mount", "add", url, "/pond", "pond").exit_code == 0
    told = run("mount", "remove", url, "/pond")
    assert told.exit_code == 2
    assert "without its mount the path '/pond' belongs to the group default" in told.output
    assert "roots of its servers, /lake" in told.output


def test_racks_are_simulated() -> None:
    told = run("simulate", "--racks", "475", "--groups", "3")
    assert told.exit_code == 0
    lines = told.output.splitlines()
    assert lines[0] == "475 racks, 3 groups"
    sizes = [int(line.split(": ")[1].split()[0]) for line in lines[2:5]]
    assert sum(sizes) == 475
    assert re.fullmatch(r"a group more: [\d.]+ % of the racks move \(even: 25.0 %\)", lines[6])
    found = json.loads(run("simulate", "--racks", "475", "--groups", "3", "--json").output)
    assert found["leaves"] == max(sizes) / 475
    assert json.loads(run("simulate", "--racks", "4", "--groups", "1", "--json").output) == {
        "racks": 4,
        "sizes": {"group-1": 4},
        "joins": pytest.approx(0.5, abs=0.5),
        "leaves": None,
    }


def test_a_fleet_that_nobody_has_joined_is_empty(path: Path) -> None:
    SqliteState(path).close()
    told = run("status", f"sqlite://{path}", "--table", "/lake/t")
    assert told.output == (
        f"fleet sqlite://{path}, epoch 0: 0 of 0 seats are taken\n\n/lake/t: no seat\n"
    )


def test_what_is_no_fleet_is_refused_by_name(path: Path) -> None:
    told = run("status", f"sqlite://{path}")
    assert (told.exit_code, told.stderr) == (
        2,
        f"Error: there is no fleet at sqlite://{path}: no such file\n",
    )
    assert not path.exists()
    assert run("status", "etcd://h/f").stderr.startswith(
        "Error: the fleet's URL 'etcd://***' can't"
    )
    with closing(SqliteState(path)) as state:
        state.write(Put(EPOCH, b'{"schema": 7, "epoch": 1}'))
    told = run("status", f"sqlite://{path}")
    assert told.exit_code == 2
    assert "the fleet's records have schema 7; allowed: 1" in told.stderr
    with closing(SqliteState(path)) as state:
        found = state.get(EPOCH)
        assert found is not None
        state.write(Put(EPOCH, b"[]", found.version))
    told = run("status", f"sqlite://{path}")
    assert (told.exit_code, told.stderr.count("\n")) == (1, 1)
    assert "the record 'epoch' is list" in told.stderr


def test_a_look_at_a_fleet_writes_nothing(path: Path) -> None:
    path.touch()
    told = run("status", f"sqlite://{path}")
    assert (told.exit_code, told.stderr) == (
        2,
        f"Error: the state store {path} has no tables: the file is empty\n",
    )
    assert path.stat().st_size == 0
    path.unlink()
    SqliteState(path).close()
    told = run("status", f"sqlite://{path}?fleet=typo")
    assert told.exit_code == 2
    assert "has the fleet '', but the URL names 'typo'; allowed: the same" in told.stderr
    with closing(open_state(f"sqlite://{path}?fleet=lake")) as state:
        assert state.get(NAME_KEY) is not None, "the first server names it"
    assert run("status", f"sqlite://{path}?fleet=lake").exit_code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--down", "nan"), "'nan' is no number from 0 to 1"),
        (("--servers", "100", "--tokens", "10000"), "make 1000000 points of the ring; allowed"),
    ],
)
def test_a_simulation_that_says_nothing_or_has_no_end_is_refused(
    options: tuple[str, ...], said: str
) -> None:
    told = run("simulate", *options)
    assert told.exit_code == 2
    assert said in told.stderr


def test_a_look_shows_what_can_not_be_read(path: Path) -> None:
    with closing(SqliteState(path)) as state:
        state.write(Put("seats/0", b"\x1b[31m"))
    told = run("status", f"sqlite://{path}")
    assert told.exit_code == 0
    assert "the record 'seats/0' is no JSON" in told.output


def test_the_state_is_the_owners_alone(path: Path) -> None:
    SqliteState(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_empty_table_is_refused(path: Path) -> None:
    SqliteState(path).close()
    told = run("status", f"sqlite://{path}", "--table", "")
    assert (told.exit_code, told.stderr) == (
        2,
        "Error: the table is empty; allowed: the base path of a table\n",
    )


def test_what_a_member_wrote_reaches_no_terminal_unescaped(path: Path) -> None:
    with closing(SqliteState(path)) as state:
        member = Member("x", "http://\x1b[31mred\x07\n:1", is_standby=False, joined=5)
        state.hold(member_key("x"), member_bytes(member), 60)
        told = run("status", f"sqlite://{path}", "--table", "/lake/\x1b")
    assert told.exit_code == 0
    assert "http://\\x1b[31mred\\x07\\n:1" in told.output
    assert "/lake/\\x1b: no seat" in told.output
    assert "\x1b" not in told.output


def test_a_simulation_is_shown_as_text_and_as_json() -> None:
    small = ("simulate", "--servers", "3", "--tables", "200", "--down", "0.1")
    told = run(*small)
    assert told.exit_code == 0
    assert told.output.startswith(
        "3 servers, 200 tables; copies 3, depth 1, tokens 100; a server is"
    )
    assert "a removed seat: tables with another owner  33.3 % (even: 33.3 %)\n" in told.output
    found = json.loads(run(*small, "--json").output)
    assert found["without_copy"] == pytest.approx(0.001)
    assert found["leaves"]["copied"] == 0
    alone = run("simulate", "--servers", "1", "--tables", "10").output
    assert "a removed seat" not in alone


def test_sizes_that_are_not_allowed_are_refused(subtests: pytest.Subtests) -> None:
    for given in [("--servers", "0"), ("--copies", "4"), ("--depth", "3"), ("--down", "2"), ("x",)]:
        with subtests.test(given=given):
            told = run("simulate", *given)
            assert (told.exit_code, told.stderr.count("\n")) == (2, 1)


def test_a_table_is_forgotten(tmp_path: Path) -> None:
    url, table = f"sqlite://{tmp_path}/views.db", tmp_path / "orders"
    with closing(SqliteDatabase(tmp_path / "views.db")) as database:
        store = SharedStore(database, TableId.of(str(table)))
        store.commit(blobs_of([b"1", b"2"]), lambda _: {"a": b"1"})
        told = run("forget", url, f"{table}/")
        assert told.exit_code == 0
        assert told.output == f"file://{table} is forgotten: 1 rows and 2 blobs are deleted\n"
        assert store.rows() == {}
    told = run("forget", url, str(table))
    assert told.exit_code == 0
    assert told.output == f"{tmp_path}/views.db has nothing of file://{table}\n"
    told = run("forget", url, str(table), "--json")
    assert json.loads(told.output) == {"table": f"file://{table}", "rows": 0, "blobs": 0}


def test_of_several_databases_the_one_of_the_table_is_asked(tmp_path: Path) -> None:
    urls = [f"sqlite://{tmp_path}/{name}.db" for name in "ab"]
    table = tmp_path / "t"
    stores = Stores(StoreOptions("sql", urls=tuple(urls)))
    store = stores.open(TableId.of(str(table)))
    store.commit(blobs_of([b"1"]), lambda _: {"a": b"1"})
    told = run("forget", f"{urls[1]},{urls[0]}", str(table))
    assert told.output == f"file://{table} is forgotten: 1 rows and 1 blobs are deleted\n"
    assert store.rows() == {}
    stores.close()
    told = run("forget", DatabaseRing(urls).url_of(TableId.of(str(table))), str(table))
    assert told.exit_code == 1
    assert "this one has one database" in told.output


def test_databases_are_changed_on_purpose(tmp_path: Path) -> None:
    a, b = (f"sqlite://{tmp_path}/{name}.db" for name in "ab")
    Stores(StoreOptions("sql", urls=(a,))).close()
    with pytest.raises(StoreError, match="for servers with one database"):
        Stores(StoreOptions("sql", urls=(a, b)))
    told = run("spread", f"{b},{a}")
    assert told.exit_code == 0
    assert told.output == f"tables are spread over {a}, {b}\n"
    Stores(StoreOptions("sql", urls=(a, b))).close()
    assert json.loads(run("spread", b, "--json").output) == {"databases": [b]}
    Stores(StoreOptions("sql", urls=(b,))).close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "no URL of a database is given"),
        ("sqlite:///a.db,sqlite:////a.db", "name sqlite:///a.db twice"),
        ("postgres://me:secret@h/v,postgresql://h:5432/v", "name postgresql://h:5432/v twice"),
    ],
)
def test_what_spread_and_forget_refuse(url: str, why: str) -> None:
    for words in (("spread", url), ("forget", url, "/t")):
        told = run(*words)
        assert told.exit_code == 2
        assert re.search(why, " ".join(told.output.split()))
        assert "secret" not in told.output


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    told = run("forget", f"sqlite://{tmp_path}/views.db", "/t")
    assert told.exit_code == 1
    assert f"there is no store in {tmp_path}/views.db" in told.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "table", "why"),
    [("mysql://:secret@x/y", "/t", "begins with 'mysql'"), ("sqlite:///x.db", "", "is empty")],
)
def test_what_forget_refuses(url: str, table: str, why: str) -> None:
    told = run("forget", url, table)
    assert told.exit_code == 2
    assert why in told.output
    assert "secret" not in told.output
