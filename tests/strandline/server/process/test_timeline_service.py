"""``TimelineService``: a child of its driver, or a thread; which options it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from executor_proxy.http import HttpSession
from strandline import TimelineService
from strandline.server.http.authorization import new_token
from strandline.settings.service import STORE_URL
from strandline.settings.setting import Settings
from tests.kit.servers.processes import is_alive, wait_for_end
from tests.strandline.server.process.services import LATEST, params
from timeline.errors import (
    ConfigError,
    RemoteFailureError,
    RootNotAllowedError,
    ServiceUnreachableError,
)

pytestmark = pytest.mark.property


@pytest.fixture(scope="module")
def service(lake: Path) -> Iterator[TimelineService]:
    with TimelineService([lake / "one"]) as service:
        yield service


def test_the_service_answers_from_a_process_of_its_own(
    service: TimelineService, lake: Path
) -> None:
    session = HttpSession(service.url, service.token)
    body = json.loads(session.get(LATEST, params(lake / "one")))
    assert len(body) == 2
    status = service.status()
    assert status["pid"] != os.getpid()
    assert status["requests"]["latest_file_slices"] >= 1
    assert is_alive(status["pid"])


def test_the_token_is_random_needed_and_seen_nowhere(service: TimelineService, lake: Path) -> None:
    token = service.token
    assert token
    assert token != new_token()
    with pytest.raises(RemoteFailureError, match="401"):
        HttpSession(service.url, "another").get(LATEST, params(lake / "one"))
    assert token not in repr(service)
    pid = service.status()["pid"]
    for file in ("cmdline", "environ"):
        assert token.encode() not in Path(f"/proc/{pid}/{file}").read_bytes()
    with urllib.request.urlopen(f"{service.url}/healthz") as response:
        assert response.status == 200


def test_a_root_can_be_added_and_serves_when_that_returns(
    service: TimelineService, lake: Path
) -> None:
    session = HttpSession(service.url, service.token)
    with pytest.raises(RootNotAllowedError, match="outside the roots"):
        session.get(LATEST, params(lake / "two"))
    service.add_root(str(lake / "two"))
    assert session.get(LATEST, params(lake / "two")).startswith(b"[")


def test_an_empty_token_admits_everybody(lake: Path) -> None:
    with TimelineService([str(lake)], token="", in_process=True) as service:
        assert service.token is None
        assert HttpSession(service.url).get("/", {}) == b"Hello Hudi"


def test_in_process_it_is_the_same_service(lake: Path) -> None:
    with TimelineService([str(lake)], in_process=True) as service:
        assert service.is_running
        assert service.status()["pid"] == os.getpid()
        session = HttpSession(service.url, service.token)
        assert session.get(LATEST, params(lake / "one")).startswith(b"[")
        url = service.url
    assert not service.is_running
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


def test_the_service_can_be_stopped_twice_and_started_again(lake: Path) -> None:
    service = TimelineService([str(lake)], in_process=True)
    service.start()
    with pytest.raises(ServiceUnreachableError, match="started already"):
        service.start()
    service.stop()
    service.stop()
    with pytest.raises(ServiceUnreachableError, match="isn't running"):
        _ = service.url
    service.start()
    assert service.status()["uptime_s"] >= 0
    service.stop()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"store_dir": "/x"}, "store directory /x: storage memory keeps no files"),
        ({"storage": "tape"}, "storage is 'tape'; allowed: memory, spillable, rocksdb, sql"),
        ({"storage": "sql"}, "storage sql needs a store URL"),
        ({"storage": "sql", "store_dir": "/x"}, "store directory /x: storage sql keeps no files"),
        ({"roots": []}, r"roots is \[\]; it must be"),
        ({"roots": Path("/lake")}, r"roots is PosixPath\('/lake'\); it must be"),
        ({"roots": [""]}, "base path '' can't be opened"),
        ({"roots": "/lake"}, "roots is '/lake'; it must be"),
        ({"host": "192.0.2.1"}, r"can't listen on 192\.0\.2\.1 port 0: Cannot assign"),
        ({"storage_options": {"key": object()}}, "storage_options can't be handed"),
    ],
)
def test_a_start_that_can_not_be_is_refused_in_words(wrong: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TimelineService(**{"roots": ["/lake"], **wrong}).start()


def test_a_port_in_use_is_refused(lake: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}: Address already in use"):
            TimelineService([str(lake)], port=port).start()


def test_a_child_that_can_not_start_leaves_its_last_words(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "httptools.py").write_text("raise ImportError('this httptools is broken')")
    # Patched: the child imports what its driver imports.
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ServiceUnreachableError) as caught:
        TimelineService([str(lake)]).start()
    assert "the timeline service's process ended with 1:" in str(caught.value)
    assert "this httptools is broken" in str(caught.value)


class StoppedMeanwhile(TimelineService):
    """A service that another thread stops after each look at its runner."""

    _runner = property(lambda self: vars(self).pop("runner", None), lambda self, _: None)


def test_a_service_may_be_stopped_while_it_is_asked_whether_it_runs(lake: Path) -> None:
    service = StoppedMeanwhile([str(lake)])
    with TimelineService([str(lake)], in_process=True) as other:
        for expected in ({"is_running": True}, {"_has_ended": False}, {"url": other.url}):
            ((name, value),) = expected.items()
            vars(service)["runner"] = other._runner
            assert getattr(service, name) == value


def loads_of(service: TimelineService, base: Path) -> dict[str, int]:
    """Return how many partitions came from where."""
    (table,) = service.status()["tables"].values()
    counters = table["counters"].items()
    return {
        name.partition("source=")[2].partition("}")[0].partition(",")[0]: count
        for name, count in counters
        if name.startswith("partition_loads")
    }


def lasting(kind: str, directory: Path) -> dict[str, Any]:
    """Return the arguments of a service whose store lasts; the kind ``sql2`` has two databases."""
    if kind == "rocksdb":
        return {"storage": kind, "store_dir": str(directory)}
    files = [directory / "views.db", directory / "more.db"][: int(kind[-1])]
    urls = ",".join(f"sqlite://{file}" for file in files)
    return {"storage": "sql", "settings": Settings.parse({STORE_URL.name: urls}, [STORE_URL])}


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("kind", ["rocksdb", "sql1", "sql2"])
def test_a_service_whose_store_lasts_goes_on_from_where_the_last_one_was(
    lake: Path, tmp_path: Path, kind: str, how: str
) -> None:
    base = lake / "one"
    answers = []
    for turn in range(2):
        with TimelineService([str(base)], **lasting(kind, tmp_path)) as service:
            http = HttpSession(service.url, token=service.token)
            answers.append(http.get(LATEST, params(base)))
            assert loads_of(service, base) == {("record" if turn else "listing"): 1}
            if how == "killed":
                pid = service.status()["pid"]
                os.kill(pid, signal.SIGKILL)
                wait_for_end(pid)
    assert answers[0] == answers[1]
