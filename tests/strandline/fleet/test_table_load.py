"""What a server of a fleet knows of the load of its tables."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from click.testing import CliRunner, Result

from fsview.wire.routes import BY_NAME
from strandline.__main__ import main
from strandline.fleet.records import token_mark
from strandline.fleet.roster import Roster
from strandline.fleet.state.sqlite import SqliteState
from strandline.server.table_threads import READY_CPU_S
from tests.kit.servers.live_service import TOKEN, known
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.fixed_fleet import FixedFleet

LATEST = BY_NAME["latest_base_files"].path


def test_the_owner_knows_what_its_answers_take(fleet: FixedFleet, table: SmallTable) -> None:
    parts = fleet.servers[0].parts
    parts.note_loads()
    client = fleet.client(0)
    for _ in range(3):
        client.request("GET", LATEST, known(table.storage, partition="p=1"))
    parts.note_loads()
    ((name, told),) = parts.status()["tables"].items()
    assert told["load"].keys() == {"cpu", "peak_cpu"}
    counters = told["counters"]
    assert counters["requests{route=latest_base_files,way=ready}"] == 2
    # The computed answer took more than a ready one would.
    assert counters["requests_cpu_us"] > 1e6 * READY_CPU_S
    assert name.startswith("file:///")


def test_the_command_asks_all_members(fleet: FixedFleet, table: SmallTable, tmp_path: Path) -> None:
    fleet.client(0).request("GET", LATEST, known(table.storage, partition="p=1"))
    path, token = tmp_path / "fleet.db", tmp_path / "token"
    token.write_text(TOKEN, "utf-8")
    token.chmod(0o600)

    def run(*more: str, command: str = "load") -> Result:
        return CliRunner().invoke(main, ["fleet", command, f"sqlite:///{path}", *more])

    with closing(SqliteState(path)) as state:
        for url in fleet.urls:
            roster = Roster(state, url, token=token_mark(TOKEN))
            roster.join()
            roster.step()
        found = run("--token-file", str(token), "--json")
        assert found.exit_code == 0, found.output
        ((group, sums),) = json.loads(found.stdout)["groups"].items()
        assert (group, sums["peak_cpu"]) == ("default", 0)
        assert sums["packed_bytes"] > 0
        assert table.storage.base_path.rpartition("/")[2] in run("--token-file", str(token)).stdout
        planned = run("--token-file", str(token), "--greedy", command="plan")
        assert planned.exit_code == 0, planned.output
        assert planned.stdout.startswith("no group is above a mark\n\ngreedy: 0 moves")
        told = json.loads(
            run("--token-file", str(token), "--greedy", "--json", command="plan").stdout
        )
        assert (told["better"], told["milp"]) == ("greedy", None)
        assert [each["name"] for each in told["greedy"]["groups"]] == ["default"]
        early = tmp_path / "early"
        early.write_text(f"next\n{TOKEN}", "utf-8")
        refused = run("--token-file", str(early))
        assert (refused.exit_code, "with 401" in refused.stderr) == (1, True)
        fleet.kill(2)
        away = run("--token-file", str(token))
        assert (away.exit_code, fleet.urls[2] in away.stderr) == (1, True)
