"""Requests of a daily upsert to an object store, and its time where each takes 30 ms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.object_store.delay import Proxy, delayed
from benchmarks.object_store.s3_server import s3_process
from benchmarks.results.ratios import Bound, Ratio
from benchmarks.write.request_count import (
    Commit,
    DailyUpserts,
    Ours,
    counted,
    in_turns,
    make_bucket,
)

_DELAY_S: Final = 0.03
_MOST: Final = 20
_LISTS: Final = 4
_OF_HUDI: Final = 0.5
_HUDI: Final = "Hudi 1.2.0"


def request_figures(folder: Path, *, days: int, hudi: bool) -> Iterator[Ratio]:
    """Yield requests and lists of a commit, and its seconds at 30 ms a request.

    Args:
        folder: For rows, and the log of requests.
        days: Number of commits, after some that aren't counted.
        hudi: Whether this package on Spark and real Hudi take part.
    """
    folder = folder / "requests"
    folder.mkdir()
    with (
        s3_process() as endpoint,
        delayed(endpoint, _DELAY_S, folder / "requests.jsonl") as proxy,
    ):
        sides = sides_of(proxy, folder, endpoint, hudi=hudi)
        try:
            yield from ratios(in_turns(sides, days))
        finally:
            for side in sides:
                side.close()


def ratios(found: Mapping[str, Sequence[Commit]]) -> Iterator[Ratio]:
    """Yield the figures of all sides' commits, those of the same day as pairs."""
    of_hudi = {name: commits for name, commits in found.items() if name.startswith(_HUDI)}
    for name, commits in found.items():
        counts = counted(commits)
        # Commits that also clean make more, so the target is for the least of them.
        least = min(len(each.requests) for each in commits)
        lists = min(sum(seen.kind == "list" for seen in each.requests) for each in commits)
        has_goal = name not in of_hudi and "no service" not in name
        bounds = (Bound(value=_MOST), Bound(value=_LISTS)) if has_goal else (None, None)
        yield Ratio(f"daily upsert, {name}: requests without a clean", [least], "", bound=bounds[0])
        yield Ratio(f"daily upsert, {name}: lists without a clean", [lists], "", bound=bounds[1])
        yield Ratio(f"daily upsert, {name}: requests, mean", [sum(counts.values())], "")
        seconds = [each.seconds for each in commits]
        what = f"daily upsert, {name}, 30 ms a request"
        if name in of_hudi or not of_hudi:
            yield Ratio(what, [median(seconds)], "s")
            continue
        for other, theirs in of_hudi.items():
            partners = [each.seconds for each in theirs]
            bound = Bound(ratio=_OF_HUDI) if other == _HUDI else None
            yield Ratio(what, seconds, "s", other, partners, bound)


def sides_of(proxy: Proxy, folder: Path, endpoint: str, *, hudi: bool) -> list[DailyUpserts]:
    """Return the sides, each with a bucket of its own; those on Spark only beside Hudi."""
    sides: list[DailyUpserts] = [
        Ours(proxy, make_bucket(endpoint, f"local-{service}".lower()), service=service)
        for service in (True, False)
    ]
    if hudi:
        # Only these need PySpark and Java.
        from benchmarks.write.spark_requests import spark_sides  # noqa: PLC0415

        sides += spark_sides(proxy, folder, endpoint)
    return sides
