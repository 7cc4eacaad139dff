"""``LateAnswers``: whose work an answer joins, and what is kept of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fsview.wire.lookup_form import LOOKUP_PATH
from strandline.server.api.late_answers import (
    AT_MOST,
    AT_MOST_BYTES,
    KEPT_BYTES,
    LateAnswers,
    wait_of,
)
from strandline.server.http.reply import Reply
from strandline.server.http.request import Request

VIEW = "/v1/hoodie/view"
LATEST = f"{VIEW}/datafiles/latest/partition"
REFRESH = f"{VIEW}/refresh/"


def asks(
    value: bytes = b"1", path: str = LATEST, query: bytes = b"basepath=/t&timelinehash=x"
) -> Request:
    return Request("GET", path, query, {b"strandline-wait": value})


def test_the_wait_is_bounded(subtests: pytest.Subtests) -> None:
    for value, seconds in [
        (b"2", 2),
        (b"0.5", 0.5),
        (b"0", 0),
        (b"5", 5),
        (b"60", 5),
        (b"9999", 5),
    ]:
        with subtests.test(value=value, seconds=seconds):
            assert wait_of(asks(value)) == seconds


def test_a_malformed_wait_is_ignored(subtests: pytest.Subtests) -> None:
    for value in [
        *(b"", b" ", b"-1", b"+1", b"nan", b"inf", b"1e3", b"0x10", b"1,1", b"1;q=1", b"two"),
        *(b".", b"1.", b".5", b"\xd9\xa1", b"\x00", b"1\n", b"99999", b"9" * 5000),
    ]:
        with subtests.test(value=value):
            assert wait_of(asks(value)) is None


def test_only_views_have_a_bounded_wait(subtests: pytest.Subtests) -> None:
    for path in ["/", "/v1/strandline/status", "/v1/hoodie/marker/all", "/v1/hoodie/viewx"]:
        with subtests.test(path=path):
            assert wait_of(asks(path=path)) is None


class Scene:
    """Unfinished work whose answers the test gives."""

    def __init__(self) -> None:
        self.unfinished = LateAnswers()
        self.begun: list[asyncio.Future[Reply]] = []

    async def _work(self, _: Request) -> Reply:
        future = asyncio.get_running_loop().create_future()
        self.begun.append(future)
        reply: Reply = await future
        return reply

    async def ask(self, asked: Request | None = None, wait_s: float = 0.001) -> Reply:
        return await self.unfinished.answer(asked or asks(), wait_s, self._work)

    async def end(self, nth: int, reply: Reply) -> None:
        """End the work that was begun ``nth``."""
        self.begun[nth].set_result(reply)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def test_a_reply_in_parts_goes_to_the_client_that_joins() -> None:
    async def play() -> None:
        scene, parts = Scene(), iter([b"1", b"2"])
        assert (await scene.ask()).status == 503
        joined = asyncio.create_task(scene.ask(wait_s=60))
        await asyncio.sleep(0)
        await scene.end(0, Reply(200, b"", rest=parts))
        assert (await joined).rest is parts
        assert scene.unfinished.status()["unfinished"] == 0

    asyncio.run(play())


@pytest.mark.parametrize(
    "reply", [Reply(200, b"", rest=iter([b"1"])), Reply(200, b"x" * (1 << 20))]
)
def test_a_reply_is_kept_for_the_next_try_however_long(reply: Reply) -> None:
    async def play() -> None:
        scene = Scene()
        await scene.ask()
        await scene.end(0, reply)
        assert await scene.ask() is reply
        assert len(scene.begun) == 1

    asyncio.run(play())


def test_replies_that_are_kept_are_bounded_together() -> None:
    async def play() -> None:
        scene = Scene()
        await scene.ask()
        await scene.end(0, Reply(200, b"x" * (KEPT_BYTES + 1)))
        assert scene.unfinished.status()["unfinished"] == 0

    asyncio.run(play())


def test_an_escaped_name_joins_nothing() -> None:
    async def play() -> None:
        scene = Scene()
        asked = asks()
        escaped = replace(asked, query=asked.query + b"&refresh%6fff=true")
        for _ in range(2):
            await scene.ask(escaped)
        assert len(scene.begun) == 2

    asyncio.run(play())


def test_two_clients_at_a_time_have_work_of_their_own() -> None:
    async def play() -> None:
        scene = Scene()
        await asyncio.gather(scene.ask(), scene.ask())
        assert len(scene.begun) == 2
        await asyncio.gather(scene.ask(), scene.ask(), scene.ask())
        assert len(scene.begun) == 3

    asyncio.run(play())


def test_batched_look_ups_are_joined_by_their_body() -> None:
    async def play() -> None:
        scene = Scene()
        asked = replace(asks(path=LOOKUP_PATH), method="POST", body=b"one")
        assert wait_of(asked) == 1
        for body in (b"one", b"other", b"one", b"other"):
            await scene.ask(replace(asked, body=body))
        assert len(scene.begun) == 2

    asyncio.run(play())


def test_bodies_of_late_answers_are_bounded() -> None:
    async def play() -> None:
        scene = Scene()
        asked = replace(asks(path=LOOKUP_PATH), method="POST", body=b"x" * AT_MOST_BYTES)
        assert (await scene.ask(asked)).status == 503
        waits = asyncio.create_task(scene.ask(replace(asked, body=b"y")))
        assert not (await asyncio.wait((waits,), timeout=0.05))[0]
        await scene.end(0, Reply(200, b"answer"))
        await scene.end(1, Reply(200, b"other"))
        assert (await waits).body == b"other"

    asyncio.run(play())


@pytest.mark.parametrize(
    "other",
    [
        asks(query=b"basepath=/t"),
        asks(query=b"basepath=/t&timelinehash=x&refreshoff=true"),
        asks(path=REFRESH),
        asks(path=f"{VIEW}/clustering/pending/"),
        asks(path=f"{VIEW}/timeline/instants/all"),
    ],
)
def test_what_the_timeline_does_not_determine_is_not_joined(other: Request) -> None:
    async def play() -> None:
        scene = Scene()
        await scene.ask(other)
        await scene.ask(other)
        assert len(scene.begun) == 2

    asyncio.run(play())


def test_beyond_the_bound_clients_wait() -> None:
    async def play() -> None:
        scene = Scene()
        for number in range(AT_MOST):
            await scene.ask(asks(query=b"timelinehash=%d" % number))
        waits = asyncio.create_task(scene.ask())
        assert not (await asyncio.wait((waits,), timeout=0.05))[0]
        await scene.end(-1, Reply(200, b"answer"))
        assert (await waits).body == b"answer"
        assert scene.unfinished.status() == {"answers": AT_MOST, "unfinished": AT_MOST}

    asyncio.run(play())


def test_a_client_that_leaves_before_its_503_ends_its_work() -> None:
    async def play() -> None:
        scene = Scene()
        asked = asyncio.create_task(scene.ask(wait_s=60))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await asyncio.sleep(0)
        assert scene.begun[0].cancelled()

    asyncio.run(play())
