"""Clients that are behind: at every later step they get the same answers or are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson
import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.conformance.view_suite import canonical, servers, without_times
from tests.fsview.subject import LocalClient
from tests.fsview.sync.test_timeline_diff import not_as_rebuilt
from tests.kit.storage.troubled_storage import IN_FLIGHT, TroubledStorage
from tests.kit.tables import golden, planned
from timeline.errors import ViewBehindError
from timeline.meta_client import TableMetaClient

pytestmark = pytest.mark.property

RAW = ("filegroups/", "inflight/")
"""Answers that show uncommitted files, which are never part of an older client's answer."""


def loaded_then(scenario: str, steps: Iterable[int]) -> Iterator[TableView]:
    """Yield a table at each step that was followed from the first, everything loaded throughout."""
    storage = TroubledStorage(scenario)
    table = TableView(storage)
    at = 0
    for step in steps:
        while at <= step:
            storage.step(at)
            table.sync()
            LocalView.newest(table).load_all_partitions()
            at += 1
        yield table


def loaded_late(scenario: str, steps: Iterable[int]) -> Iterator[TableView]:
    """Yield a table at each step that was followed from the first, nothing loaded until then."""
    for step in steps:
        storage = TroubledStorage(scenario)
        table = TableView(storage)
        for at in range(step + 1):
            storage.step(at)
            table.sync()
        yield table


def restarted(scenario: str, steps: Iterable[int]) -> Iterator[TableView]:
    """Yield a table at each step that has just been opened: it never saw what came before."""
    for step in steps:
        yield TableView(golden.GoldenStorage(scenario, step))


WAYS = {"loaded-then": loaded_then, "loaded-late": loaded_late, "restarted": restarted}
ANSWERED = {"loaded-then": 0.85, "loaded-late": 0.7, "restarted": 0.7}
"""The share of the questions that must be answered; the figure of merit is ``reported``."""


def questions(recording: golden.Recording) -> Iterator[golden.Exchange]:
    """Yield the questions at the client's timeline whose answers don't depend on what is loaded."""
    for exchange in recording.exchanges:
        path = exchange.path.rstrip("/")
        elsewhere = "timeline/" in path or path.endswith(("all/latest", "range/latest"))
        asked = exchange.method == "GET" and exchange.phase == "loaded" and not elsewhere
        if asked and exchange.status == 200:
            yield exchange


def in_flight(scenario: str) -> frozenset[str]:
    """Return the names of the files of writes in flight, which no instant names, at any step."""
    unnamed: set[str] = set()
    if scenario in IN_FLIGHT:
        for step, table in enumerate(loaded_then(scenario, golden.steps(scenario))):
            unnamed |= not_as_rebuilt(table, scenario, step).unnamed
    return frozenset(unnamed)


def without_logs(body: Any, names: frozenset[str]) -> Any:
    """Return a body without the logs of these names."""
    if isinstance(body, dict):
        return {
            key: [log for log in value if log["path"].rpartition("/")[2] not in names]
            if key == "logFiles"
            else without_logs(value, names)
            for key, value in body.items()
        }
    return [without_logs(item, names) for item in body] if isinstance(body, list) else body


def pending_clustering(scenario: str, then: int, now: int) -> frozenset[tuple[str, str, str]]:
    """Return (partition, file id, time) of what pends now for a client of an earlier step.

    That is every clustering whose plan is on storage and that isn't completed at the client's
    instant (rule 7).
    """
    known = TableMetaClient.open(golden.GoldenStorage(scenario, then)).active_timeline()
    done = {instant.requested_time for instant in known.completed()}
    client = TableMetaClient.open(golden.GoldenStorage(scenario, now))
    return frozenset(planned.clusterings(client, done))


def clustered(dto: dict[str, str]) -> tuple[str, str, str]:
    """Return what identifies a group in a pending clustering."""
    return dto["partition"], dto["id"], dto["instantTime"]


def is_right(
    exchange: golden.Exchange,
    body: bytes,
    unnamed: frozenset[str],
    pending: frozenset[tuple[str, str, str]],
) -> bool:
    """Whether an answer is the recorded one, but for the files of writes in flight.

    Of clusterings it is ``pending``, whatever was recorded.
    """
    seen = without_logs(without_times(orjson.loads(body)), unnamed)
    right = without_logs(without_times(exchange.body), unnamed)
    if "clustering/pending" in exchange.path:
        return set(map(clustered, seen)) == pending
    if unnamed and "all/beforeoron" in exchange.path:
        # A partition that a write in flight makes is there for a listing only.
        return all(canonical(seen.get(key, [])) == canonical(right[key]) for key in right)
    return bool(canonical(seen) == canonical(right))


def asked_again(
    table: TableView,
    recording: golden.Recording,
    unnamed: frozenset[str],
    pending: frozenset[tuple[str, str, str]],
) -> Iterator[tuple[golden.Exchange, str]]:
    """Yield every question of a recording with its outcome."""
    client = LocalClient(table)
    known = recording.client
    try:
        table.at(known["lastinstantts"], known["timelinehash"])
    except ViewBehindError:
        yield from ((exchange, "unknown") for exchange in questions(recording))
        return
    for exchange in questions(recording):
        if unnamed and any(part in exchange.path for part in RAW):
            continue
        status, body = client.ask(exchange.method, exchange.path, exchange.params)
        if status == 400:
            yield exchange, "refused"
        else:
            yield exchange, "answered" if is_right(exchange, body, unnamed, pending) else "wrong"


@pytest.mark.parametrize("way", WAYS)
def test_older_clients_get_their_own_answers_or_none(
    way: str, report: Callable[[str], None]
) -> None:
    """The share that is answered is the figure of merit; a wrong answer is never right."""
    outcomes: Counter[str] = Counter()
    wrong = []
    for scenario in golden.scenarios():
        unnamed = in_flight(scenario)
        (server,) = servers(scenario)
        recorded = golden.recorded_steps(scenario, server)
        for later, table in zip(recorded[1:], WAYS[way](scenario, recorded[1:]), strict=True):
            for step in (step for step in recorded if step < later):
                base = table.storage.base_path
                recording = golden.recording(scenario, step, server, base=base)
                pending = pending_clustering(scenario, step, later)
                for exchange, outcome in asked_again(table, recording, unnamed, pending):
                    outcomes[outcome] += 1
                    if outcome == "wrong":
                        wrong.append((scenario, step, later, exchange.path, exchange.params))
    assert not wrong, f"{len(wrong)} of {outcomes}: {wrong[:5]}"
    share = outcomes["answered"] / outcomes.total()
    report(f"older clients, {way}: {share:.1%} of {outcomes.total():,} answered, {dict(outcomes)}")
    assert share > ANSWERED[way], outcomes
