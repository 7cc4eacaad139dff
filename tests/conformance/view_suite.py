"""Every recorded answer of Hudi's own timeline server, asked of a subject of ours.

A subclass says how a table is served (``serving``); the suite asks what was asked of Java, in the
same order, and compares. What differs on purpose is in ``golden/README.md`` and here, nowhere else:

* file groups and map entries come in any order; slices and logs have theirs;
* where Java failed (500) on a question that has an answer, any sound answer is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson
import pytest

from tests.kit import golden

JAVA_FAILS = frozenset({"slices/range/latest", "slices/uncompacted/partition/latest"})
"""Where Java answers 500: a group without a slice in the range, or without a committed one."""


class Client(Protocol):
    """A subject that serves one table; answers (status, body)."""

    base_path: str

    def ask(self, method: str, path: str, params: Mapping[str, str]) -> tuple[int, bytes]: ...


def canonical(body: Any) -> Any:
    """Return a body with everything sorted whose order Java leaves open."""
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
    """Return a body without what metadata doesn't know of a file: its times and blocks."""
    if isinstance(body, list):
        return [without_times(item) for item in body]
    if isinstance(body, dict):
        return {
            key: 0 if key in ("modificationTime", "blocksize") else without_times(value)
            for key, value in body.items()
        }
    return body


@dataclass(frozen=True)
class Difference:
    """One answer that isn't as recorded."""

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
    client: Client, recording: golden.Recording, where: str, *, times: bool = True
) -> list[Difference]:
    """Ask everything that a recording asked, in its order; return what differs."""
    found = []
    shown = canonical if times else lambda body: canonical(without_times(body))
    for exchange in recording.exchanges:
        status, body = client.ask(exchange.method, exchange.path, exchange.params)
        if exchange.status == 500 and _short(exchange.path) in JAVA_FAILS:
            right = status == 200
        else:
            right = status == exchange.status
            if right and status == 200:
                right = shown(orjson.loads(body)) == shown(exchange.body)
        if not right:
            found.append(Difference(where, exchange, status, body))
    return found


def _short(path: str) -> str:
    return path.removeprefix("/v1/hoodie/view/").rstrip("/")


def told(differences: list[Difference]) -> str:
    """Return the first few differences as text."""
    return f"{len(differences)} answers differ:\n" + "\n".join(map(str, differences[:4]))


def servers(scenario: str) -> tuple[str, ...]:
    """Return which recordings are compared: Java without its metadata table lists files, as we
    do."""
    return ("rest_mdt_off",) if golden.info(scenario)["metadata_table"] else ("rest",)


class ViewSuite:
    """Recordings, for a table that is built at once; inherit and define ``serving``."""

    times = True

    def serving(self, scenario: str, step: int, directory: Path) -> AbstractContextManager[Client]:
        """Serve a golden table as it was after a step, from a fresh start."""
        raise NotImplementedError

    def steps(self, scenario: str) -> tuple[tuple[str, int], ...]:
        """Return the (server, step) of the recordings to replay; fewer where asking is dear."""
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
                differences += replay(client, recording, where, times=self.times)
        assert not differences, told(differences)
