"""The demo's S3 server: moto's, a process of its own, behind a proxy that delays each request.

The server's own log has a line for each request; the proxy's says which way's it was, by the header
``User-Agent``. The lake is made and copied without the delay.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import fsspec
import fsspec.asyn

from benchmarks.object_store.delay import Proxy, delayed
from benchmarks.object_store.s3_server import answered_s, s3_options, s3_process
from demo.object_store.record import Job, Measured, Passed, counted

_TAG: Final = re.compile(r"demo-way-(\w+)")
_AT_ONCE: Final = 64
_REQUESTS: Final = 500


@dataclass(frozen=True, slots=True)
class StoreServer:
    """A running S3 server.

    Attributes:
        endpoint: Its URL without the delay.
        proxy: What delays requests.
        log: Its own log.
    """

    endpoint: str
    proxy: Proxy
    log: Path

    @classmethod
    @contextmanager
    def running(cls, folder: Path, delay_s: float) -> Iterator[StoreServer]:
        """Run the server and the proxy until the block ends.

        Args:
            folder: For both logs.
            delay_s: How long the proxy keeps each request.
        """
        log = folder / "s3-server.log"
        with (
            s3_process(log) as endpoint,
            delayed(endpoint, delay_s, folder / "requests.jsonl") as proxy,
        ):
            yield cls(endpoint, proxy, log)

    @property
    def direct(self) -> Mapping[str, Any]:
        """Options of fsspec without the delay."""
        return s3_options(self.endpoint)

    def options(self, way: str) -> Mapping[str, Any]:
        """Return options of fsspec through the proxy, by which requests are a way's."""
        return s3_options(self.proxy.endpoint, f"demo-way-{way}")

    def count(self, jobs: Sequence[Job]) -> list[Measured]:
        """Count the requests of some jobs that have ended."""
        answered = answered_s(self.log)
        passed = []
        for request in self.proxy.requests():
            tag = _TAG.search(request.agent)
            passed.append(Passed(tag[1] if tag else "", request.started_s, request.ended_s))
        return [counted(job, answered, passed) for job in jobs]

    def capacity(self, bucket: str, prefixes: Sequence[str]) -> float:
        """Return how many lists of folders the server answers in a second, without the delay.

        Cost: ``_REQUESTS`` requests, ``_AT_ONCE`` of them at once.
        """
        config = {"config_kwargs": {"max_pool_connections": _AT_ONCE}}
        store = fsspec.filesystem("s3", **self.direct | config, skip_instance_cache=True)

        async def ask_all() -> None:
            turn = asyncio.Semaphore(_AT_ONCE)

            async def ask(number: int) -> None:
                async with turn:
                    prefix = f"{prefixes[number % len(prefixes)]}/"
                    await store._call_s3(
                        "list_objects_v2", Bucket=bucket, Prefix=prefix, Delimiter="/"
                    )

            await asyncio.gather(*map(ask, range(_REQUESTS)))

        begin = time.perf_counter()
        fsspec.asyn.sync(store.loop, ask_all)
        return _REQUESTS / (time.perf_counter() - begin)
