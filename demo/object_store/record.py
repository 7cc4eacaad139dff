"""What the report on an object store consists of, and what is wrong with it.

A *job* is one Spark job, of ``TASKS`` tasks in fresh Python workers, each of which asks for the
newest base files of all partitions, as tasks do whose rows go everywhere. The job's
process tells when it began and ended and what its tasks waited for; its requests are counted in the
S3 server's own log, afterwards.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from demo.object_store.task import TaskAnswer
from demo.record import BatchRecord, FileLife, GroupProof, LogRecord, Proof

TASKS: Final = 16
"""Tasks of a job; each is a Python worker of its own."""

OWN, FORGETS, KEPT = WAYS = ("own", "forgets", "kept")
TITLES: Final = {
    OWN: "each task builds its own view",
    FORGETS: "a service that forgets the table at each commit",
    KEPT: "the service, kept",
}
FULL_SHARE: Final = 0.5
"""Share of what the S3 server can answer up to which times are compared."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job.

    Attributes:
        way: One of ``WAYS``.
        day: Number of the feed's day after whose commits it ran.
        begin_s, end_s: When it ran, on the machine's monotonic clock.
        tasks: The answers of its tasks.
    """

    way: str
    day: int
    begin_s: float
    end_s: float
    tasks: tuple[TaskAnswer, ...]

    @property
    def wall_s(self) -> float:
        """Seconds from its start until its last answer."""
        return self.end_s - self.begin_s

    @property
    def waited_s(self) -> float:
        """Seconds until the answer, of all tasks."""
        return math.fsum(task.waited_s for task in self.tasks)

    @property
    def answer(self) -> list[tuple[int, str]]:
        """Number and digest of the files that each task was answered."""
        return [(task.files, task.digest) for task in self.tasks]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Job:
        """Return the job of ``dataclasses.asdict``."""
        return cls(**dict(values) | {"tasks": tuple(map(TaskAnswer.from_json, values["tasks"]))})


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of a job.

    Attributes:
        answered: Those in the S3 server's own log.
        by_way: Way → those that the proxy in front of it passed on for that way; ``""``: others.
        busiest: The most within any one second.
        took_s: Median of the seconds until an answer began, the delay included; 0 without any.
    """

    answered: int
    by_way: Mapping[str, int]
    busiest: int
    took_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A job and its requests.

    Attributes:
        job: The job.
        requests: Its requests.
        is_disturbed: Whether its service was killed, so that tasks may build views of their own.
    """

    job: Job
    requests: Requests
    is_disturbed: bool = False

    @property
    def rate(self) -> float:
        """Requests a second, over the whole job."""
        return self.requests.answered / self.job.wall_s

    @property
    def failures(self) -> list[str]:
        """What is wrong with the job or its count, a sentence each."""
        job, counted = self.job, self.requests
        where = f"day {job.day}, {TITLES[job.way]}"
        passed = sum(counted.by_way.values())
        failures = []
        if counted.answered != passed:
            failures.append(
                f"its server's log has {counted.answered} requests, its proxy's {passed}"
            )
        others = {way or "nobody": n for way, n in counted.by_way.items() if way != job.way and n}
        failures += [f"{n} requests of its time are tagged {way}" for way, n in others.items()]
        calls = sum(task.calls for task in job.tasks)
        if calls > counted.answered:
            failures.append(f"its tasks made {calls} calls, the server saw {counted.answered}")
        if not self.is_disturbed:
            if job.way != OWN and calls:
                failures.append(f"its tasks made {calls} calls to storage beside the service")
            reasons = sorted({reason for task in job.tasks for reason in task.fallbacks})
            failures += [f"tasks stopped using the service: {reason}" for reason in reasons]
        if len({task.pid for task in job.tasks}) < len(job.tasks):
            failures.append("tasks shared a Python worker")
        return [f"{where}: {failure}" for failure in failures]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Measured:
        """Return the job of ``dataclasses.asdict``."""
        job, requests = Job.from_json(values["job"]), Requests(**values["requests"])
        return cls(job, requests, values["is_disturbed"])


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the days: median, least and most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of some values."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The demo on an object store.

    Attributes:
        partitions: Number of partitions at the start; each day adds one.
        delay_ms: What the S3 server waits before each answer.
        capacity: Requests a second that the S3 server answered at most, measured at the start.
        table_version, table_type: The tables'.
        rows: Number of rows at the end.
        loading: The first job of the kept service, which loaded the table.
        jobs: Those that are compared: each way after each day.
        after_kill: The job that ran while the killed service was replaced.
        killed: Process id of the kept service before it was killed, and after.
        feed: Table → the days' writes.
        proofs: Table → results of the readers.
        groups: File groups of the table written without a service, compared with the other's.
        life: What happened to one data file, and why.
        logs: Of a merge-on-read table.
        platform: Versions and cores, for people.
        seconds: Of the whole run.
    """

    partitions: int
    delay_ms: float
    capacity: float
    table_version: int
    table_type: str
    rows: int
    loading: Measured
    jobs: tuple[Measured, ...]
    after_kill: Measured
    killed: tuple[int, int]
    feed: Mapping[str, tuple[BatchRecord, ...]]
    proofs: Mapping[str, tuple[Proof, ...]]
    groups: GroupProof
    life: FileLife | None
    logs: LogRecord | None
    platform: str
    seconds: float = field(default=0.0)

    @property
    def days(self) -> tuple[int, ...]:
        """Numbers of the days, in order."""
        return tuple(sorted({each.job.day for each in self.jobs}))

    def of(self, way: str) -> tuple[Measured, ...]:
        """Return the compared jobs of a way, in the order of days."""
        found = (each for each in self.jobs if each.job.way == way)
        return tuple(sorted(found, key=lambda each: each.job.day))

    def spread(self, way: str, figure: Callable[[Measured], float]) -> Spread:
        """Return a figure of a way's jobs over the days."""
        return Spread.of([figure(each) for each in self.of(way)])

    @property
    def busiest(self) -> Measured:
        """The compared job with the most requests a second."""
        return max(self.jobs, key=lambda each: each.rate)

    @property
    def compares_times(self) -> bool:
        """Whether the S3 server had so much left that times tell of requests, not of its limits."""
        return self.busiest.rate <= FULL_SHARE * self.capacity

    @property
    def failures(self) -> list[str]:
        """The checks that failed, a sentence each."""
        measured = (self.loading, *self.jobs, self.after_kill)
        failures = [failure for each in measured for failure in each.failures]
        failures += self._unlike()
        most = [self.spread(way, lambda each: each.requests.answered) for way in WAYS]
        failures += [
            f"{TITLES[less]}: up to {fewer.most:,} requests; {TITLES[more]}: from {other.least:,}"
            for (more, other), (less, fewer) in pairwise(zip(WAYS, most, strict=True))
            if fewer.most >= other.least
        ]
        if self.killed[0] == self.killed[1]:
            failures.append(f"the service's process {self.killed[0]} was not replaced")
        failures += [
            f"{table}: {proof.reader} differs: {proof.difference}"
            for table, proofs in self.proofs.items()
            for proof in proofs
            if not proof.holds
        ]
        if self.groups.difference is not None:
            failures.append(f"the tables' file groups differ: {self.groups.difference}")
        return failures

    def _unlike(self) -> Iterator[str]:
        """Yield a sentence for each job that was answered other files than the day's first one."""
        for day in self.days:
            first, *others = [each.job for each in self.jobs if each.job.day == day]
            others += [each.job for each in (self.after_kill,) if each.job.day == day]
            for job in others:
                if job.answer != first.answer:
                    yield f"day {day}: {TITLES[job.way]}: other files than {TITLES[first.way]}"

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        values = dataclasses.asdict(self)
        values["feed"] = {table: [b.as_json() for b in found] for table, found in self.feed.items()}
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> StoreReport:
        """Return the report of ``as_json``."""
        found = dict(values)
        for name in ("loading", "after_kill"):
            found[name] = Measured.from_json(values[name])
        found["jobs"] = tuple(map(Measured.from_json, values["jobs"]))
        found["killed"] = tuple(values["killed"])
        found["feed"] = {
            table: tuple(map(BatchRecord.from_json, batches))
            for table, batches in values["feed"].items()
        }
        found["proofs"] = {
            table: tuple(Proof(**proof) for proof in proofs)
            for table, proofs in values["proofs"].items()
        }
        found["groups"] = GroupProof(**values["groups"])
        found["life"] = values["life"] and FileLife.from_json(values["life"])
        found["logs"] = values["logs"] and LogRecord(**values["logs"])
        return cls(**found)


def most_in_a_second(at_s: Sequence[float]) -> int:
    """Return the most times that lie within any one second."""
    ordered, most, first = sorted(at_s), 0, 0
    for last, each in enumerate(ordered):
        while each - ordered[first] >= 1:
            first += 1
        most = max(most, last - first + 1)
    return most


@dataclass(frozen=True, slots=True)
class Passed:
    """A request that the proxy passed on.

    Attributes:
        way: The way that it is tagged with; ``""`` if none.
        started_s, ended_s: When it came and when its answer began, on the machine's monotonic
            clock.
    """

    way: str
    started_s: float
    ended_s: float


def counted(job: Job, answered_s: Sequence[float], passed: Sequence[Passed]) -> Measured:
    """Count the requests of a job.

    Args:
        job: The job.
        answered_s: When the server answered each request, by its own log.
        passed: The requests by the proxy's log.
    """
    within = [at for at in answered_s if job.begin_s <= at <= job.end_s]
    of_job = [each for each in passed if job.begin_s <= each.ended_s <= job.end_s]
    tags = Counter(each.way for each in of_job)
    took_s = statistics.median([each.ended_s - each.started_s for each in of_job] or [0.0])
    return Measured(job, Requests(len(within), dict(tags), most_in_a_second(within), took_s))
