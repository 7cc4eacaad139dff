"""Our service for Hudi's jobs, and what they ask it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fsview.wire.routes import BY_NAME
from tests.kit.servers.serve_process import ServeProcess
from tests.oracle.drop_in.jobs import CITIES, Kind
from tests.oracle.drop_in.recording_relay import OK, RecordingRelay, asked
from tests.oracle.view.walk import MERGE_ON_READ

ROOT = Path(__file__).parents[3]
OF_TASKS = {"view/datafile/latest/partition", "view/datafiles/beforeoron/latest"}
"""What tasks that tag rows ask of a copy-on-write table."""
OF_CLEANER = {"view/filegroups/all/partition/stateless", "view/filegroups/replaced/before"}
OF_MERGE_ON_READ = {"view/slices/beforeoron/latest", "view/slices/partition/latest/stateless"}
OF_MARKERS = {
    *("marker/create", "marker/create-and-merge", "marker/dir/exists", "marker/dir/delete"),
}


@dataclass(frozen=True, slots=True)
class Service:
    """A service, the relay before it, and the folder of its tables."""

    process: ServeProcess
    relay: RecordingRelay
    lake: Path

    def counted(self) -> Counter[str]:
        """Return the number of requests of each route of the view, from the service's status."""
        told = self.process.status()["requests"]
        paths = {name: BY_NAME[name].path.strip("/") for name in told}
        return Counter({paths[name].removeprefix("v1/hoodie/"): n for name, n in told.items()})

    def check_all_answered(self) -> Counter[str]:
        """Check that all was answered with 200 and counted; return the requests."""
        exchanges = self.relay.exchanges
        assert [one for one in exchanges if one.status != OK] == []
        seen = asked(exchanges)
        assert {path: n for path, n in seen.items() if path.startswith("view/")} == self.counted()
        return seen

    def check_followed(self, *, lists: int = 1) -> str:
        """No partition was listed more often, no table loaded anew; return the figures."""
        told = []
        for name, table in self.process.status()["tables"].items():
            counters = table["counters"]
            loads = sum(n for counter, n in counters.items() if counter.startswith("partition_lo"))
            assert loads <= lists * len(CITIES), (name, counters)
            told.append(f"{name.rpartition('/')[2]} {loads}")
            assert [counter for counter in counters if counter.startswith("reloads")] == []
        assert "Traceback" not in self.process.log.read_text()
        return (
            f"real Hudi: {len(self.relay.exchanges)} requests, all answered with 200; "
            f"partitions loaded: {', '.join(told)}"
        )


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Service]:
    """Run a service with these options of ``strandline serve``."""
    lake = folder / "lake"
    lake.mkdir()
    with (
        ServeProcess(lake, folder / "serve.log", *options) as process,
        RecordingRelay(process.port) as relay,
    ):
        yield Service(process, relay, lake)


def check_asked(seen: Counter[str], kinds: list[Kind], *, markers: bool) -> None:
    """Check that the service did what Hudi's own server does in a job."""
    expected = OF_TASKS | OF_CLEANER
    if any(kind.table_type == MERGE_ON_READ for kind in kinds):
        expected |= OF_MERGE_ON_READ
    assert expected <= seen.keys()
    assert (seen.keys() >= OF_MARKERS) == markers


@contextmanager
def another(what: str, release: str, service: Service, log: Path) -> Iterator[None]:
    """Run a job in another process meanwhile; it must succeed."""
    command = [sys.executable, "-m", "tests.oracle.drop_in.jobs", what, release]
    process = subprocess.Popen(
        [*command, str(service.lake), str(service.relay.port), str(log)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield
    except BaseException:
        process.kill()
        raise
    finally:
        said, _ = process.communicate()
    assert process.returncode == 0, said[-8000:]
