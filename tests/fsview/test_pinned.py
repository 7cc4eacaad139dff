"""Clients that are behind: asked again at every later state, answered as then or refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from fsview.table_view import TableView
from tests.conformance.view_suite import canonical, servers, without_times
from tests.fsview.subject import LocalClient
from tests.fsview.test_follow import IN_FLIGHT
from tests.kit import golden
from tests.kit.rebuilt import missing_from_rebuilt
from tests.kit.stepping import SteppingStorage

RAW = ("filegroups/", "inflight/")
"""Answers that show uncommitted files, which are never part of an older client's answer."""


def questions(recording: golden.Recording) -> Iterable[golden.Exchange]:
    """Yield what is asked at the client's timeline, whatever partitions happen to be loaded."""
    for exchange in recording.exchanges:
        path = exchange.path.rstrip("/")
        elsewhere = "timeline/" in path or path.endswith(("all/latest", "range/latest"))
        asked = exchange.method == "GET" and exchange.phase == "loaded" and not elsewhere
        if asked and exchange.status == 200:
            yield exchange


def without_logs(body: Any, names: set[str]) -> Any:
    """Return a body without the logs of these names."""
    if isinstance(body, dict):
        return {
            key: [log for log in value if log["path"].rpartition("/")[2] not in names]
            if key == "logFiles"
            else without_logs(value, names)
            for key, value in body.items()
        }
    return [without_logs(item, names) for item in body] if isinstance(body, list) else body


def clustered(dto: dict[str, str]) -> tuple[str, str, str]:
    """Return what identifies a group in a pending clustering."""
    return dto["partition"], dto["id"], dto["instantTime"]


@pytest.mark.parametrize("lazily", [False, True], ids=["loaded-then", "loaded-late"])
def test_older_clients_get_their_own_answers_or_none(lazily: bool) -> None:
    """The share that is answered is the figure of merit; a wrong answer is never right."""
    outcome: Counter[str] = Counter()
    wrong = []
    for scenario in golden.scenarios():
        if lazily and scenario in IN_FLIGHT:
            continue  # a late listing shows files of writes in flight, which no instant tells apart
        storage = SteppingStorage(scenario)
        table = TableView(storage)
        client = LocalClient(table)
        (server,) = servers(scenario)
        recorded = golden.recorded_steps(scenario, server)
        unnamed: set[str] = set()
        for step in range(recorded[-1] + 1):
            storage.step(step)
            table.sync()
            if not lazily:
                table.newest().load_all_partitions()
            if not lazily and scenario in IN_FLIGHT:
                unnamed |= missing_from_rebuilt(table, golden.GoldenStorage(scenario, step))[1]
        for step in recorded[:-1]:
            recording = golden.recording(scenario, step, server, base=client.base_path)
            for exchange in questions(recording):
                if unnamed and any(part in exchange.path for part in RAW):
                    continue
                status, body = client.ask(exchange.method, exchange.path, exchange.params)
                if status == 400:
                    outcome["refused"] += 1
                    continue
                outcome["answered"] += 1
                seen = without_logs(without_times(orjson.loads(body)), unnamed)
                right = without_logs(without_times(exchange.body), unnamed)
                if "clustering/pending" in exchange.path:
                    # What pends now pends for everybody, too (rule 7).
                    same = set(map(clustered, right)) <= set(map(clustered, seen))
                elif scenario in IN_FLIGHT and "all/beforeoron" in exchange.path:
                    same = all(seen.get(key, []) == right[key] for key in right)
                else:
                    same = canonical(seen) == canonical(right)
                if not same:
                    wrong.append((scenario, step, exchange.path, dict(exchange.params)))
    assert not wrong, f"{len(wrong)} of {outcome}: {wrong[:5]}"
    share = outcome["answered"] / outcome.total()
    assert share > (0.5 if lazily else 0.85), outcome
