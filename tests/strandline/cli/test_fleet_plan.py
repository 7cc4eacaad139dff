"""``strandline fleet plan`` and ``load``: what they make of members' answers, what they print."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from strandline.__main__ import main
from strandline.fleet.mounts import Mount, MountTable
from strandline.fleet.records import MOUNTS, mounts_bytes, next_epoch, read_fleet
from strandline.fleet.roster import Roster
from strandline.fleet.state.base import Put
from strandline.fleet.state.sqlite import SqliteState
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.serve_process import environment


class Members:
    """Members of a fleet, each of which answers every request with a body of its own.

    Attributes:
        path: The fleet's state store.
        bodies: By the number of the member.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.bodies = path, dict[int, bytes]()
        self._servers: list[ThreadingHTTPServer] = []
        self._rosters: list[Roster] = []
        self.state = SqliteState(path)

    def start(self, body: bytes, group: str = "default") -> str:
        """Have a further member join; return its address."""
        number, bodies = len(self._servers), self.bodies
        bodies[number] = body

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(bodies[number])))
                self.end_headers()
                self.wfile.write(bodies[number])

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self._servers.append(server)
        url = f"http://127.0.0.1:{server.server_address[1]}"
        roster = Roster(self.state, url, dead_s=3600, group=group, roots=["/lake"])
        roster.join()
        self._rosters.append(roster)
        self._rosters[0].step()  # it leads
        return url

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
