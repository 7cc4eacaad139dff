"""The job's parent process: starts the job, reads its events, restarts it after the kill.

The job leads a process group of its own, which includes Spark's JVM and the timeline service. Its
stdin is a pipe: however this process ends, the pipe closes and the job kills the group, so no
process is left behind. An interrupt from the keyboard reaches only this process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from demo.record import BatchRecord, ReaderRecord, RunRecord, ServiceKill

_ROOT: Final = Path(__file__).resolve().parents[1]
_LAST_LINES: Final = 40
_DEATH_S: Final = 20.0


class JobFailedError(RuntimeError):
    """The job ended unexpectedly; the message has the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of the whole feed.

    Attributes:
        feed: The folder of the batches.
        table: The table's base path.
        log: The file for the job's stderr.
        days: Number of the last batch.
        table_version: The table's version.
        table_type: One of ``TABLE_TYPES``.
        master: Spark's master URL.
        service: Whether the embedded timeline service is on.
        die_on: Number of the batch in which the job is killed; ``None``: it isn't.
        service_kill: The batches in which the service is killed; ``None``: it isn't.
        module: The job's module.
        grace_s: Seconds that the job's children get to end by themselves.
    """

    feed: Path
    table: str
    log: Path
    days: int
    table_version: int
    table_type: str
    master: str
    service: bool
    die_on: int | None = None
    service_kill: ServiceKill | None = None
    module: str = "demo.job"
    grace_s: float = 20.0

    def command(self, *, deadly: bool) -> list[str]:
        """Return the job's command line."""
        words = [sys.executable, "-m", self.module, "--tied", "--master", self.master]
        words += ["--feed", str(self.feed), "--table", self.table]
        words += ["--days", str(self.days)]
        words += ["--table-version", str(self.table_version), "--table-type", self.table_type]
        words += [] if self.service else ["--no-service"]
        words += ["--kill-service", str(self.service_kill)] if self.service_kill else []
        return words + (["--die-on", str(self.die_on)] if deadly else [])


def run(
    plan: Plan,
    on_batch: Callable[[BatchRecord], None],
    on_death: Callable[[], None],
) -> RunRecord:
    """Run the feed until the job is killed, if it is to be, and then to the end.

    Args:
        plan: What to run.
        on_batch: Called with the record of each finished batch.
        on_death: Called after the job was killed, before it is restarted.

    Raises:
        JobFailedError: The job failed, or wasn't killed where it should have been.
    """
    begin = time.perf_counter()
    batches: list[BatchRecord] = []
    platform = ""
    readers = None
    for deadly in (True, False) if plan.die_on else (False,):
        wanted = -signal.SIGKILL if deadly else 0
        command = plan.command(deadly=deadly)
        with closing(events(command, plan.log, wanted=wanted, grace_s=plan.grace_s)) as told:
            for event, values in told:
                if event == "batch":
                    batches.append(BatchRecord.from_json(values))
                    on_batch(batches[-1])
                elif event == "readers":
                    readers = ReaderRecord.from_json(values)
                else:
                    platform = values["platform"]
        if deadly:
            on_death()
    seconds = time.perf_counter() - begin
    kill = plan.service_kill
    return RunRecord(plan.service, tuple(batches), plan.die_on, platform, seconds, kill, readers)


def events(
    command: Sequence[str], log: Path, *, wanted: int = 0, grace_s: float = 20.0
) -> Generator[tuple[str, dict[str, Any]], None, None]:
    """Run a job and yield the name and the values of each of its events, until it has ended.

    Whoever stops earlier closes the iterator, which kills the job.

    Args:
        command: Its command line.
        log: The file for its stderr.
        wanted: How it should end.
        grace_s: Seconds that its children get to end by themselves.

    Raises:
        JobFailedError: It ended otherwise.
    """
    with _started(command, log, grace_s) as job:
        assert job.stdout is not None
        for text in job.stdout:
            # A line cut off by the kill is dropped.
            if text.startswith('{"event":') and text.endswith("\n"):
                values = json.loads(text)
                yield values.pop("event"), values
        _check_end(log, job.wait(), wanted)


@contextmanager
def _started(command: Sequence[str], log: Path, grace_s: float) -> Iterator[subprocess.Popen[str]]:
    """Run a job in a process group of its own, and leave no process of it behind."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    # Executors import the packages from the same place as this process.
    paths = [str(_ROOT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with log.open("ab") as file:
        job = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=environment,
            start_new_session=True,
        )
    try:
        yield job
        _await_group(job.pid, grace_s)
    finally:
        _kill_group(job.pid)
        # Closes the pipes and reaps the job, which would otherwise stay a zombie.
        job.communicate()
        # On a busy machine a killed process may take a while to end.
        _await_group(job.pid, _DEATH_S)


def _check_end(log: Path, code: int, wanted: int) -> None:
    """Raise unless a job ended as expected."""
    if code != wanted:
        lines = log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
        raise JobFailedError(
            f"the job ended with {code}, not with {wanted}; the end of {log}:\n" + "\n".join(lines)
        )


def _await_group(group: int, grace_s: float) -> None:
    """Wait until the group has no process left, at most ``grace_s`` seconds."""
    deadline = time.monotonic() + grace_s
    while _alive(group) and time.monotonic() < deadline:
        time.sleep(0.02)


def _alive(group: int) -> bool:
    """Return whether the group has a running process; zombies don't count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    states = [_state(path, group) for path in Path("/proc").glob("[0-9]*/stat")]
    return not states or any(state not in ("", "Z") for state in states)


def _state(path: Path, group: int) -> str:
    """Return the letter of a process's state; empty if it is gone or of another group."""
    try:
        # State, parent and group follow the command's name, which is in parentheses.
        state, _, its_group, *_ = path.read_text("utf-8", "replace").rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return state if int(its_group) == group else ""


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
