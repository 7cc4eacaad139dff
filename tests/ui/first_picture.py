"""Measures the page of a large table: ``tox exec -e ui -- python -m tests.ui.first_picture``.

From the address until timeline and partitions have ink, of a service that has loaded the table;
then from a commit that tells the service until the page names it. Each answer must be as short as
is promised.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, Response, expect

from benchmarks.command import load_all, opened
from benchmarks.servers.big_table import BigTable, Shape
from benchmarks.servers.server import StrandlineServer, target
from strandline.server.rest.operation import MARKS_BYTES, MOST_MARKS
from tests.ui.browser import launched, visiting

PARTITIONS: Final = 1000
GROUPS: Final = 1000
TOUCHED: Final = 10
"""Partitions, and groups of each, to which the commit writes."""


@dataclass(frozen=True)
class Measured:
    """What was measured.

    Attributes:
        first_s: Until the first picture.
        first_cpu_s: CPU time of the service until then.
        commit_s: From a commit until the page names it.
        answers: Of operations → bytes of the longest answer, before compression.
        marks: Most marks of an answer.
    """

    first_s: float
    first_cpu_s: float
    commit_s: float
    answers: dict[str, int]
    marks: int


def measured(browser: Browser, folder: Path, shape: Shape) -> Measured:
    """Measure the page of a table of this shape, which is made in a folder."""
    big = BigTable.create(folder / "t", shape)
    with StrandlineServer(str(folder), "--watch", "80000") as server:
        opened(server, big)
        load_all(server, big)
        with (
            visiting(browser, f"http://127.0.0.1:{server.port}") as visit,
            collecting(visit.page) as answers,
        ):
            server.settle()
            cpu_s, began = server.cpu_s(), time.perf_counter()
            visit.page.goto(f"{visit.url}/ui/#/table?{urlencode({'table': str(big.path)})}")
            visit.drawn(2)
            first_s, first_cpu_s = time.perf_counter() - began, server.cpu_s() - cpu_s
            visit.settle()
            big.update(big.partitions[:TOUCHED], TOUCHED)
            state = big.state()
            began = time.perf_counter()
            server.ask(target("sync", str(big.path), state), "POST")
            timeline = visit.page.get_by_role("region", name="Timeline: table")
            expect(timeline).to_contain_text(state.last_instant)
            commit_s = time.perf_counter() - began
            visit.settle()
            wrong = visit.wrong()
    if wrong:
        raise AssertionError(wrong)
    sizes: dict[str, int] = {}
    marks = 0
    for name, body, value in answers:
        sizes[name] = max(len(body), sizes.get(name, 0))
        marks = max(marks, *(len(column) for column in value.get("marks", {"": ()}).values()))
    return Measured(first_s, first_cpu_s, commit_s, sizes, marks)


@contextmanager
def collecting(page: Page) -> Iterator[list[tuple[str, bytes, Any]]]:
    """Collect operation, body and value of each answer of ``/v2``; known at the end."""
    seen: list[Response] = []
    found: list[tuple[str, bytes, Any]] = []
    page.on("response", lambda each: seen.append(each) if "/v2/" in each.url else None)
    yield found
    for each in seen:
        name = each.url.partition("/v2/")[2].partition("?")[0]
        if name != "watch":
            found.append((name, each.body(), each.json()))


def main() -> None:
    """Measure, print, and check the bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--groups", type=int, default=GROUPS, help="files of each partition")
    options = parser.parse_args()
    shape = Shape(options.partitions, options.groups)
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        found = measured(browser, Path(folder), shape)
    print(f"{shape}: first picture after {found.first_s:.2f} s, goal 2 s")
    print(f"{shape}: of these {found.first_cpu_s:.2f} s of the service's processor")
    print(f"{shape}: a commit is shown after {found.commit_s:.2f} s")
    for name, size in sorted(found.answers.items()):
        print(f"{name}: {size / 1e3:.1f} kB, goal {MARKS_BYTES / 1e3:.0f} kB")
    print(f"marks: {found.marks}, goal {MOST_MARKS}")
    assert found.marks <= MOST_MARKS, found
    assert max(found.answers.values()) <= MARKS_BYTES, found


if __name__ == "__main__":
    main()
