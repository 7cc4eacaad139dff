"""Conformance suite: every recorded answer of Hudi's timeline server.

A subclass defines how a table is served (``serving``). The suite repeats the recorded requests in
their order and compares the answers. These differences are intended, and those in
``golden/README.md``; there are no others:

* file groups and map entries come in any order; slices and logs have theirs;
* where Java failed (500) on a question that has an answer, any sound answer is right;
* the server that read the metadata table knew no times of files and gave paths without scheme; the
  one of 0.15.0 knew fewer routes, and of an instant fewer times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson
import pytest

from tests.kit.tables import golden

UNABLE = "rest of a table with a metadata table"
"""A server that can't read the metadata table and fails every request."""

FAILS_0150 = frozenset(
    {"slices/all/beforeoron/latest", "basefiles/all/beforeoron", "loadallpartitions"}
)
"""Requests at which the server of 0.15.0 answers 500: it can't load a whole table."""

UNCOMMITTED_0150 = {("rollback_mor_v6_h0150/rest_server_0150/02", n) for n in (208, 209)}
"""Requests at which it shows a file of a write in flight."""

JAVA_FAILS = frozenset({"slices/range/latest", "slices/uncompacted/partition/latest"})
"""Requests at which Java answers 500: no slice in the range, or none committed."""


class Client(Protocol):
    """A client of one table; answers are (status, body)."""

    base_path: str

    def ask(self, method: str, path: str, params: Mapping[str, str]) -> tuple[int, bytes]: ...


def canonical(body: Any) -> Any:
    """Return a body with everything sorted that Java leaves unordered."""
    if isinstance(body, dict) and "instants" not in body:
        return {key: canonical(value) for key, value in body.items()}
    if not isinstance(body, list):
        return body
    items = body
    timeline = None
    if body and isinstance(body[0], dict) and "timeline" in body[0]:
        timeline = body[0]["timeline"]
        items = [{**item, "timeline": None} for item in body]
    return [timeline, sorted(map(_sorted_keys, items))]


def _sorted_keys(item: Any) -> bytes:
    return orjson.dumps(item, option=orjson.OPT_SORT_KEYS)


def without_times(body: Any) -> Any:
    """Return a body without the modification times and block sizes, which metadata doesn't have."""
    if isinstance(body, list):
        return [without_times(item) for item in body]
    if isinstance(body, dict):
        return {
            key: 0 if key in ("modificationTime", "blocksize") else without_times(value)
            for key, value in body.items()
        }
    return body


def without_schemes(body: Any) -> Any:
    """Return a body whose paths have no scheme, like those from a metadata table."""
    if isinstance(body, list):
        return [without_schemes(item) for item in body]
    if isinstance(body, dict):
        return {key: without_schemes(value) for key, value in body.items()}
    return re.sub("^file:(//)?(?=/)", "", body) if isinstance(body, str) else body


def as_of_0150(body: Any) -> Any:
    """Return a body whose instants have only the fields of 0.15.0."""
    if isinstance(body, list):
        return [as_of_0150(item) for item in body]
    if isinstance(body, dict):
        kept = body.keys() - {"requestedTime", "completionTime"}
        return {key: as_of_0150(value) for key, value in body.items() if key in kept}
    return body


SHOWN: Mapping[str, Callable[[Any], Any]] = {
    "rest_mdt_on": lambda body: without_times(without_schemes(body)),
    "rest_server_0150": as_of_0150,
}
"""Recorded server → projection of a body to the comparable part."""


@dataclass(frozen=True)
class Difference:
    """An answer that differs from the recorded one."""

    where: str
    exchange: golden.Exchange
    status: int
    body: bytes

    def __str__(self) -> str:
        asked = {k: v for k, v in self.exchange.params.items() if k != "timelinehash"}
        return (
            f"{self.where} #{self.exchange.n} {self.exchange.phase} {self.exchange.path} {asked}\n"
            f"  recorded {self.exchange.status}: {self.exchange.body!r:.3000}\n"
            f"  answered {self.status}: {self.body.decode()!r:.3000}"
        )


def replay(
    client: Client,
    recording: golden.Recording,
    where: str,
    *,
    times: bool = True,
    server: str = "rest",
) -> list[Difference]:
    """Repeat the requests of a recording in order; return the differences.

    Args:
        client: The client under test.
        recording: The recorded exchanges.
        where: The recording's name.
        times: Whether to compare times and block sizes of files.
        server: The recorded server.
    """
    found = []
    as_told = SHOWN.get(server, lambda body: body)
    for exchange in recording.exchanges:
        status, body = client.ask(exchange.method, exchange.path, exchange.params)
        if _was_unable(exchange, server) or (where, exchange.n) in UNCOMMITTED_0150:
            right = status == 200
        else:
            right = status == exchange.status
            if right and status == 200:
                said, recorded = as_told(orjson.loads(body)), as_told(exchange.body)
                if not times:
                    said, recorded = without_times(said), without_times(recorded)
                right = canonical(said) == canonical(recorded)
        if not right:
            found.append(Difference(where, exchange, status, body))
    return found


def _was_unable(exchange: golden.Exchange, server: str) -> bool:
    """Return whether Java failed on a sound request, or lacked the route."""
    asked = _short(exchange.path)
    if server == "rest_server_0150" and (exchange.status == 404 or asked in FAILS_0150):
        return True
    return exchange.status == 500 and (server == UNABLE or asked in JAVA_FAILS)


def _short(path: str) -> str:
    return path.removeprefix("/v1/hoodie/view/").rstrip("/")


def told(differences: list[Difference]) -> str:
    """Return the first few differences as text."""
    return f"{len(differences)} answers differ:\n" + "\n".join(map(str, differences[:4]))


def servers(scenario: str) -> tuple[str, ...]:
    """Return which recordings are compared: Java without its metadata table lists files, as we
    do."""
    return ("rest_mdt_off",) if golden.info(scenario)["metadata_table"] else ("rest",)


def all_servers(scenario: str) -> tuple[str, ...]:
    """Return every server that was recorded."""
    names = ("rest", "rest_mdt_off", "rest_mdt_on", "rest_server_0150")
    return tuple(name for name in names if golden.recorded_steps(scenario, name))


class ViewSuite:
    """Replays recordings on a table built at once; subclasses define ``serving``."""

    times = True

    def serving(self, scenario: str, step: int, directory: Path) -> AbstractContextManager[Client]:
        """Serve a golden table as it was after a step, from a fresh start."""
        raise NotImplementedError

    def steps(self, scenario: str) -> tuple[tuple[str, int], ...]:
        """Return the (server, step) of the recordings to replay."""
        return tuple(
            (server, step)
            for server in servers(scenario)
            for step in golden.recorded_steps(scenario, server)
        )

    @pytest.mark.parametrize("scenario", golden.scenarios())
    def test_answers_as_recorded_when_built_at_once(self, scenario: str, tmp_path: Path) -> None:
        differences = []
        for server, step in self.steps(scenario):
            with self.serving(scenario, step, tmp_path / f"{server}-{step:02d}") as client:
                recording = golden.recording(scenario, step, server, base=client.base_path)
                where = f"{scenario}/{server}/{step:02d}"
                able = server != "rest" or server in servers(scenario)
                differences += replay(
                    client,
                    recording,
                    where,
                    times=self.times,
                    server=server if able else UNABLE,
                )
        assert not differences, told(differences)
