"""``Answers`` and the hot path: their memory is counted and bounded, and so is work on the loop."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from fsview.store.budget import Budget
from fsview.table_view import TableView
from fsview.wire.json_form import PathForms
from fsview.wire.routes import BY_NAME, Route
from strandline.server.api.remote_partitioner import MOST_BYTES, BucketRange, RemotePartitioner
from strandline.server.http.reply import Accepted
from strandline.server.lookup.answer import TARGET_BYTES, AnswerCache, Question
from strandline.server.process.composition_root import Parts
from tests.kit.garbage import collect_garbage
from tests.kit.servers.live_service import parts_of
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import golden

MIB = 1 << 20
TABLE = TableView(MemoryStorage())
EURO = "\u20ac"


class Grown:
    """How many bytes were taken meanwhile."""

    bytes = 0


@contextmanager
def traced() -> Iterator[Grown]:
    """Measure by how many bytes Python's live objects grow."""
    grown = Grown()
    tracemalloc.start()
    try:
        collect_garbage()
        before, _ = tracemalloc.get_traced_memory()
        yield grown
        collect_garbage()
        grown.bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.property
@pytest.mark.parametrize("letter", ["f", "é", "\u20ac", "\U0001f600"])
@pytest.mark.parametrize("length", [10, 3700])
def test_what_is_kept_is_counted_with_its_key(letter: str, length: int) -> None:
    budget = Budget(1 << 40)
    kept = AnswerCache(budget.account("answers"), budget)
    with traced() as grown:
        answers: dict[object, bytes] = {}
        for number in range(2000):
            key = (
                "latest_file_slice",
                False,
                3,
                f"/lake/{number}",
                f"{number:06d}{letter * length}",
            )
            kept.put(TABLE, answers, key, b"x" * (100 + number % 7))
    assert 0.8 * grown.bytes < budget.used < 2 * grown.bytes + 2000 * 512


@pytest.mark.property
def test_keys_make_way_for_others_within_the_budget() -> None:
    budget = Budget(4 * MIB)
    kept = AnswerCache(budget.account("answers"), budget)
    with traced() as grown:
        answers: dict[object, bytes] = {}
        for number in range(5000):
            kept.put(TABLE, answers, ("latest_file_slice", f"{number:06d}{'f' * 3700}"), b"[]")
    assert grown.bytes < 5 * MIB
    assert 0 < len(answers) < 1200


@pytest.mark.property
@pytest.mark.parametrize("escaped", [False, True])
def test_what_is_remembered_of_queries_does_not_grow_with_their_length(escaped: bool) -> None:
    parts = parts_of()
    with traced() as grown:
        for number in range(5000):
            filler = "%F0%9F%98%80" if escaped else "x"
            value = filler + "x" * (TARGET_BYTES - 200)
            query = f"basepath=/lake/{number}&partition={value}&fileid={number}"
            target = f"/v1/hoodie/view/datafile/latest/partition?{query}".encode()
            assert parts.hot.respond(target, {}) is None
    assert grown.bytes < 16 * MIB
    parts.close()


@pytest.mark.property
def test_what_is_remembered_of_spellings_does_not_grow_with_their_length() -> None:
    with traced() as grown:
        for number in range(2000):
            PathForms.of(f"/lake/{number}/{EURO * 4000}")
    assert grown.bytes < 8 * MIB


@pytest.mark.property
def test_what_is_remembered_of_buckets_does_not_grow_with_their_paths() -> None:
    indexes = RemotePartitioner()
    with traced() as grown:
        for number in range(20_000):
            indexes.index(BucketRange(f"{number}{EURO * 1000}", 4, 8))
    assert 0.5 * MOST_BYTES < grown.bytes < 1.5 * MOST_BYTES


# What isn't made on the loop.

SCENARIO = "mor_basic_v6"


class Groups:
    """A real merge-on-read table, one group of which has very many logs."""

    def __init__(self, root: Path, logs: int) -> None:
        step = golden.recorded_steps(SCENARIO)[-1]
        self.base = golden.build(SCENARIO, step, root / "t")
        self.known = {
            name: value
            for name, value in golden.recording(SCENARIO, step, base=str(self.base)).client.items()
            if name in ("lastinstantts", "timelinehash")
        }
        log = min(self.base.glob("*/.[!.]*.log.1_*"))
        self.partition = log.parent.name
        self.file_id = log.name[1:].partition("_")[0]
        prefix, _, token = log.name.rpartition(".log.1_")
        for number in range(100, 100 + logs):
            (log.parent / f"{prefix}.log.{number}_{token}").touch()

    def asked(self, **more: str) -> dict[str, str]:
        return {
            "basepath": str(self.base),
            "partition": self.partition,
            "fileid": self.file_id,
            "maxinstant": "99991231235959999",
            "instant": "99991231235959999",
            **self.known,
            **more,
        }


GROUP_ROUTES = [
    BY_NAME[name]
    for name in (
        "latest_base_file",
        "latest_file_slice",
        "base_file_on",
        "latest_merged_file_slice_before_or_on",
    )
]


@contextmanager
def opened(groups: Groups) -> Iterator[Parts]:
    parts = parts_of(str(groups.base.parent))
    try:
        parts.answers.reply(Question.of(BY_NAME["latest_file_slices"], groups.asked(), Accepted()))
        yield parts
    finally:
        parts.close()


def ready(parts: Parts, route: Route, params: dict[str, str]) -> bytes | None:
    table = parts.answers.known_table(params["basepath"])
    assert table is not None
    return parts.answers.ready(Question.of(route, params, Accepted()), table)


@pytest.mark.property
@pytest.mark.parametrize("route", GROUP_ROUTES, ids=lambda route: route.name)
def test_a_group_of_many_logs_is_not_read_on_the_loop(tmp_path: Path, route: Route) -> None:
    groups = Groups(tmp_path, 2000)
    with opened(groups) as parts:
        assert ready(parts, route, groups.asked()) is None
        long_way = parts.answers.reply(Question.of(route, groups.asked(), Accepted()))
        kept = ready(parts, route, groups.asked())
        assert kept is not None
        assert kept.endswith(long_way.body)
        other = groups.asked(fileid="no-such-group")
        assert ready(parts, route, other) is not None


@pytest.mark.parametrize("route", GROUP_ROUTES, ids=lambda route: route.name)
def test_a_group_of_a_few_logs_is_answered_on_the_loop(tmp_path: Path, route: Route) -> None:
    groups = Groups(tmp_path, 20)
    with opened(groups) as parts:
        made = ready(parts, route, groups.asked())
        long_way = parts.answers.reply(Question.of(route, groups.asked(), Accepted()))
        assert made is not None
        assert made.endswith(long_way.body)


def test_long_spellings_of_a_base_path_are_answered_but_not_remembered(tmp_path: Path) -> None:
    groups = Groups(tmp_path, 1)
    with opened(groups) as parts:
        spelled = f"{groups.base}{'/.' * 1000}"
        asked = groups.asked(basepath=spelled)
        route = BY_NAME["latest_file_slice"]
        assert parts.answers.reply(Question.of(route, asked, Accepted())).status == 200
        assert parts.answers.known_table(spelled) is None
        target = f"{route.path}?{urlencode(asked, quote_via=quote)}".encode()
        assert parts.hot.respond(target, {}) is None
