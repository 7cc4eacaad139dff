"""Requests of a daily upsert to an object store, and its time where each takes 30 ms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.delay import delayed
from benchmarks.ratios import Bound, Ratio
from benchmarks.s3_server import s3_options, s3_process
from benchmarks.write_requests import Commits, counted
from timeline.storage.fsspec_storage import FsspecStorage

_WARM: Final = 5
_DELAY_S: Final = 0.03
_MOST: Final = 20
_LISTS: Final = 4


def request_figures(folder: Path, *, days: int) -> Iterator[Ratio]:
    """Yield requests and lists of a commit, and its seconds at 30 ms a request.

    Args:
        folder: For the logs of requests.
        days: Number of commits, after some that aren't counted.
    """
    with s3_process() as endpoint:
        for service in (True, False):
            name = f"daily upsert, {'service' if service else 'no service'}"
            bucket = f"days-{service}".lower()
            FsspecStorage(f"s3://{bucket}/t", s3_options(endpoint))._fs.mkdir(bucket)
            with delayed(endpoint, _DELAY_S, folder / f"{bucket}.jsonl") as proxy:
                commits = Commits(proxy, bucket, service=service)
                with commits.client:
                    list(commits.write(_WARM))
                    found = list(commits.write(days))
            counts = counted(seen for _, seen in found)
            bounds = (Bound(value=_MOST), Bound(value=_LISTS)) if service else (None, None)
            yield Ratio(f"{name}: requests", [sum(counts.values())], "", bound=bounds[0])
            yield Ratio(f"{name}: lists", [counts["list"]], "", bound=bounds[1])
            yield Ratio(f"{name}, 30 ms a request", [median(s for s, _ in found)], "s")
