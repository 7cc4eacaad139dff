"""``strandline fleet plan`` and ``load``: what they make of members' answers, what they print."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from executor_proxy.seat_ring import Layout
from strandline.__main__ import main
from strandline.fleet.mounts import Mount, MountTable
from strandline.fleet.records import (
    MOUNTS,
    member_bytes,
    member_key,
    member_name,
    mounts_bytes,
    move_key,
    next_epoch,
    read_fleet,
    token_mark,
)
from strandline.fleet.roster import Roster
from strandline.fleet.seats import Member
from strandline.fleet.state.base import Put
from strandline.fleet.state.sqlite import SqliteState
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.serve_process import environment


class Members:
    """Members of a fleet, each of which answers every request with a body of its own.

    Attributes:
        path: The fleet's state store.
        bodies: By the number of the member.
        asked: Number of a member and ``Authorization`` of each request.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.bodies = path, dict[int, bytes]()
        self.asked: list[tuple[int, str | None]] = []
        self._servers: list[ThreadingHTTPServer] = []
        self._rosters: list[Roster] = []
        self.state = SqliteState(path)

    def start(self, body: bytes, group: str = "default", **more: Any) -> str:
        """Have a further member join; return its address. ``more`` are arguments of ``Roster``."""
        url = self.serve(body)
        roster = Roster(self.state, url, dead_s=3600, group=group, roots=["/lake"], **more)
        roster.join()
        self._rosters.append(roster)
        self._rosters[0].step()  # it leads
        return url

    def serve(self, body: bytes) -> str:
        """Answer at a further address; return it."""
        number, bodies, asked = len(self._servers), self.bodies, self.asked
        bodies[number] = body

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                asked.append((number, self.headers["Authorization"]))
                self.send_response(200)
                self.send_header("Content-Length", str(len(bodies[number])))
                self.end_headers()
                self.wfile.write(bodies[number])

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self._servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have the members do all that moves ask of them, until the block ends."""
        ends = threading.Event()

        def run() -> None:
            while not ends.wait(0.01):
                for roster in self._rosters:
                    moves = roster.fleet.moves
                    roster.acknowledge({move.number: move.state.name for move in moves})
                    roster.step()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join(PATIENCE_S)

    def close(self) -> None:
        self.state.close()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def run(self, command: str, *more: str) -> Result:
        return CliRunner().invoke(main, ["fleet", command, f"sqlite://{self.path}", *more])


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with closing(Members(tmp_path / "fleet.db")) as made:
        yield made


def status(*tables: tuple[str, float], memory: int = 1 << 30, further: str | None = None) -> bytes:
    """Return a status with tables and the CPU that they take."""
    told: dict[str, Any] = {
        name: {"load": {"cpu": peak, "peak_cpu": peak}, "packed_bytes": 1_000}
        for name, peak in tables
    }
    store = {"budget": {"limit_bytes": memory}}
    return json.dumps({"tables": told, "next_table": further, "store": store}).encode()


BUSY = [(f"file:///lake/{name}", 0.25) for name in "abcd"]


@pytest.mark.property  # the solver isn't in ``quick``'s environment
def test_a_plan_as_json_is_all_that_is_on_stdout(members: Members) -> None:
    """The solver, which is native code, has been seen to print lines of its own."""
    members.start(status(*BUSY))
    members.start(status(), "hot")
    ended = subprocess.run(
        [sys.executable, "-m", "strandline", "fleet", "plan", f"sqlite://{members.path}", "--json"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=PATIENCE_S,
        check=True,
    )
    told = json.loads(ended.stdout)
    assert ended.stdout.count("\n") == 1
    assert told["milp"]["moves"], "the solver was asked"
    assert {move["destination"] for move in told["milp"]["moves"]} == {"hot"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "returned no status of a server: "),
        (b"[]", "returned no status of a server: TypeError("),
        (b"{}", "returned no status of a server: KeyError('next_table')"),
        (b'{"next_table": null, "store": 7}', "returned no status of a server: TypeError("),
        (status(("/t", 1.0)).replace(b"1000", b'"x"'), "other values than numbers and names"),
        (status(("/t", -1.0)), "other values than numbers and names"),
        (status(("", 1.0)), "other values than numbers and names"),
        (status(further=7), "other values than numbers and names"),  # type: ignore[arg-type]
        (status().replace(b'"tables": {}', b'"tables": {"/t": {}}'), "tell the load of its tables"),
        (status(further="file:///t"), "shows the tables from 'file:///t' on again and again"),
    ],
)
def test_a_member_that_answers_something_else_is_named(
    members: Members, body: bytes, said: str
) -> None:
    url = members.start(body)
    for command in (("load",), ("plan", "--greedy")):
        told = members.run(*command)
        assert told.exit_code == 1, told.output
        assert f"{url} " in told.stderr
        assert said in told.stderr
        assert told.stderr.count("\n") == 1


def test_a_group_without_a_server_is_named_before_anything_is_planned(members: Members) -> None:
    assert "no server of the fleet has a seat" in members.run("plan", "--greedy").stderr
    members.start(status(*BUSY))
    # As after its last server was lost for long: the seat is gone, the mount isn't.
    mounts = MountTable((Mount.of("/lake/b", "hot"),))
    found = read_fleet(members.state)
    members.state.write(Put(MOUNTS, mounts_bytes(mounts)), next_epoch(found, has_groups=True))
    told = members.run("plan", "--greedy")
    assert told.exit_code == 1
    assert "the group hot, which has file:///lake/b, has no server; a plan needs" in told.stderr
    assert members.run("load").exit_code == 0


def test_nothing_is_planned_while_a_table_moves(members: Members) -> None:
    """The plan would move it, or count on room that it takes."""
    members.start(status(*BUSY))
    members.start(status(), "hot")
    assert members.run("move", "/lake/a", "hot", "--no-wait").exit_code == 0
    told = members.run("plan", "--greedy", "--apply")
    assert told.exit_code == 1
    assert "of /lake/a from default to hot is PLANNED; a plan needs a fleet in" in told.stderr
    assert members.run("load").exit_code == 0


def test_nothing_is_planned_while_a_moves_record_can_not_be_read(members: Members) -> None:
    members.start(status(*BUSY))
    members.state.write(Put(move_key(7), b"no JSON"))
    told = members.run("plan", "--greedy")
    assert told.exit_code == 1
    assert "the record 'moves/7'" in told.stderr
    assert "--undo NUMBER forgets it" in told.stderr
    assert members.run("moves", "--undo", "7").exit_code == 0
    assert members.run("plan", "--greedy").exit_code == 0


def test_members_with_another_token_get_none_and_have_no_say(
    members: Members, tmp_path: Path
) -> None:
    tokens, other = tmp_path / "tokens", tmp_path / "other"
    tokens.write_text("new\nold\n")
    other.write_text("other")
    members.start(
        status(("file:///lake/a", 0.25)),
        token=token_mark("old"),
        other_token=token_mark("new"),
        layout=Layout(2, 1, 9),
    )
    url = members.serve(status(("file:///lake/z", 9.0)))
    stranger = Member(member_name(url), url, False, 1, Layout(1, 1, 7), token="00000000")
    members.state.write(Put(member_key(stranger.name), member_bytes(stranger)))
    told = members.run("load", "--token-file", str(tokens), "--json")
    assert told.stderr == f"members of the fleet with another token are ignored: {url}\n"
    (table,) = json.loads(told.stdout)["tables"]
    assert (table["table"], table["copies"]) == ("file:///lake/a", 2)
    for given, said in (((), "is missing for"), (("--token-file", str(other)), "has another")):
        told = members.run("load", *given)
        assert told.exit_code == 2
        assert f"--token-file {said}" in told.stderr
        assert "all members of the fleet; allowed: serve's" in told.stderr
    assert members.asked == [(0, "Bearer new")]


def test_a_plan_that_is_applied_brings_each_group_below_its_marks(members: Members) -> None:
    members.start(status(*BUSY))
    members.start(status(), "hot")
    with members.running():
        told = members.run("plan", "--greedy", "--apply")
        assert told.exit_code == 0, told.output
    lines = told.output.splitlines()
    assert [line.partition(": ")[2] for line in lines if line.startswith("move ")][-1] == "DONE"
    mounts = read_fleet(members.state).fleet.mounts.mounts
    assert [(mount.path, mount.group) for mount in mounts] == [
        ("/lake/a", "hot"),
        ("/lake/b", "hot"),
    ]
    again = json.loads(members.run("plan", "--greedy", "--apply", "--json").stdout)
    assert (again["note"], again["moves"]) == ("no group is above a mark", [])
    assert all(max(g["load_after"], g["memory_after"]) <= 1 for g in again["greedy"]["groups"])


def test_a_plan_ends_at_the_first_move_that_is_undone(members: Members) -> None:
    members.start(status(*BUSY))
    url = members.start(status(), "hot")
    hot = members._rosters[1]
    with members.running():
        real, hot.acknowledge = (
            hot.acknowledge,
            lambda acks: real(  # type: ignore[method-assign]
                dict.fromkeys(acks, "FAILED no disk")
            ),
        )
        told = members.run("plan", "--greedy", "--apply")
    assert told.exit_code == 1
    assert f"is UNDONE, as {url} can't take the tables: no disk" in told.stderr
    assert read_fleet(members.state).fleet.mounts.mounts == ()
    assert len(json.loads(members.run("moves", "--json").stdout)["moves"]) == 1


def test_a_plan_as_json_has_the_moves_before_the_one_that_was_undone(members: Members) -> None:
    members.start(status(*BUSY))
    members.start(status(), "hot")
    hot = members._rosters[1]
    real = hot.acknowledge

    def acknowledge(acks: Mapping[int, str]) -> None:
        moves = {each.number: each.mount.path for each in hot.fleet.moves}
        fails = {number for number in acks if moves[number] == "/lake/b"}
        real({n: "FAILED no disk" if n in fails else what for n, what in acks.items()})

    with members.running():
        hot.acknowledge = acknowledge  # type: ignore[method-assign]
        told = members.run("plan", "--greedy", "--apply", "--json")
    assert told.exit_code == 1
    assert "is UNDONE, as " in told.stderr
    moves = json.loads(told.stdout)["moves"]
    assert [(move["path"], move["state"]) for move in moves] == [
        ("/lake/a", "DONE"),
        ("/lake/b", "UNDONE"),
    ]
    assert "no disk" in moves[1]["why"]


def test_a_move_is_ordered_and_shown(members: Members) -> None:
    assert members.run("moves").output == "no table has moved yet\n"
    members.start(status())
    url = members.start(status(), "hot")
    told = members.run("move", "/lake/a/", "hot", "--no-wait", "--json")
    assert told.exit_code == 0, told.output
    ordered = json.loads(told.stdout)
    assert (ordered["path"], ordered["state"], ordered["why"]) == ("/lake/a", "PLANNED", "")
    number = ordered["number"]
    said = f"move {number} of /lake/a from default to hot"
    assert members.run("moves").output == f"{said}: PLANNED\n"
    assert f"{said}: PLANNED" in members.run("status").output.splitlines()
    members._rosters[0].step()
    assert members.run("moves").output == f"{said}: WARMING, waits for {url}\n"
    refused = members.run("mount", "add", f"sqlite://{members.path}", "/lake/a", "hot")
    assert refused.exit_code == 2
    undone = members.run("moves", "--undo", str(number))
    assert undone.output == f"{said}: UNDONE, as an operator has undone it\n"
    members.state.write(Put("moves/7", b"?"))
    assert "the record 'moves/7' is no JSON" in members.run("moves").output.splitlines()[-1]
    assert members.run("moves", "--undo", "7").output == undone.output
    with members.running():
        done = members.run("move", "/lake/a", "hot", "--depth", "2")
    assert done.output.splitlines()[-1].endswith("from default to hot: DONE")
    assert read_fleet(members.state).fleet.mounts.mounts == (Mount.of("/lake/a", "hot", depth=2),)
