"""Creating markers on the loop, where other threads bring the results."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from fsview.wire.marker_form import CREATE_MARKER
from strandline.server.api.marker_creation import LoopFuture, LoopFutures, MarkerCreation
from strandline.server.http.reply import Reply
from strandline.server.http.request import Request
from strandline.server.marker.registry import MarkerService
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import marker_name
from timeline.errors import StorageUnavailableError
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId
from timeline.table.config import CONFIG_PATH


def from_threads(answers: list[LoopFuture], error: Exception | None) -> list[threading.Thread]:
    """Answer from four threads: each fourth with the error, the others by turns."""

    def work(start: int) -> None:
        for number in range(start, len(answers), 4):
            if error is not None and number % 4 == 3:
                answers[number].set_exception(error)
            else:
                answers[number].set_result(number % 2 == 0)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    return threads


def test_answers_come_from_other_threads() -> None:
    error = StorageUnavailableError("no connection")

    async def wait() -> list[bool | BaseException]:
        brought = LoopFutures(asyncio.get_running_loop())
        answers = [brought.create() for _ in range(400)]
        answers[8].future.cancel()  # its client has left
        from_threads(answers, error)
        return await asyncio.gather(*(a.future for a in answers), return_exceptions=True)

    results = asyncio.run(wait())
    assert isinstance(results[8], asyncio.CancelledError)
    for number, result in enumerate(results):
        if number != 8:
            assert result == (error if number % 4 == 3 else number % 2 == 0)


@pytest.mark.parametrize("error", [None, StorageUnavailableError("late")])
def test_an_answer_after_the_end_of_the_loop_is_dropped(error: Exception | None) -> None:
    loop = asyncio.new_event_loop()
    answers = [LoopFutures(loop).create() for _ in range(8)]
    loop.close()
    for thread in from_threads(answers, error):
        thread.join()
    assert not any(answer.future.done() for answer in answers)


def test_a_table_that_hangs_keeps_no_other_from_its_first_marker(tmp_path: Path) -> None:
    go = threading.Event()

    def table_of(base_path: str) -> tuple[TableId, Storage]:
        if base_path.endswith("hangs"):
            assert go.wait(PATIENCE_S)
        return TableId.of(base_path), LocalStorage(base_path)

    for table in ("hangs", "goes"):
        properties = tmp_path / table / CONFIG_PATH
        properties.parent.mkdir(parents=True)
        properties.touch()
    markers = MarkerService(table_of)
    creation = MarkerCreation(markers)

    def create(table: str, number: int) -> Coroutine[Any, Any, Reply]:
        query = (
            f"markerdirpath={tmp_path}/{table}/.hoodie/.temp/1"
            f"&markername={marker_name('1', number)}"
        )
        return creation.answer(Request("POST", CREATE_MARKER, query.encode(), {}))

    async def main() -> None:
        hanging = [asyncio.ensure_future(create("hangs", n)) for n in range(100)]
        assert (await create("goes", 1)).body == b"true"
        hanging[0].cancel()
        go.set()
        replies = await asyncio.gather(*hanging[1:])
        assert {reply.status for reply in replies} == {200}

    asyncio.run(main())
    markers.close()
