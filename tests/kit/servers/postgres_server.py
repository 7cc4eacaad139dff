"""A server of PostgreSQL, of Debian's packages; whatever is missing for it is an error."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.kit import debian
from tests.kit.concurrency.patience import PROCESS_S
from tests.kit.servers.free_port import free_port
from tests.kit.servers.processes import wait_for_end

USER: Final = "postgres"
_PACKAGES: Final = Path("/usr/lib/postgresql")


def install() -> None:
    """Install the packages if they are missing; needs root then."""
    if not _programs():
        debian.install("postgresql")


def _programs() -> Path | None:
    """Return the directory of the newest version's programs."""
    found = sorted(_PACKAGES.glob("*/bin/initdb"), key=lambda at: int(at.parents[1].name))
    return found[-1].parent if found else None


@dataclass(frozen=True)
class PostgresServer:
    """A server of which a test may do what it wants.

    Attributes:
        directory: Its data, log and socket.
        programs: The directory of PostgreSQL's programs.
        port: Where it listens.
        host: The address, of this machine.
        inside: What runs the command that follows it where the server is to be.
    """

    directory: Path
    programs: Path
    port: int
    host: str = "127.0.0.1"
    inside: tuple[str, ...] = ()

    def url(self, database: str = USER) -> str:
        return f"postgresql://{USER}@{self.host}:{self.port}/{database}"

    @property
    def data(self) -> Path:
        """The directory of its data."""
        return self.directory / "data"

    def start(self) -> None:
        # It may be killed, but the machine isn't: nothing needs to be synced to the disk.
        options = f"-p {self.port} -k {self.directory} -c listen_addresses={self.host} -c fsync=off"
        log = str(self.directory / "log")
        self.control("start", "-w", "-t", str(int(PROCESS_S)), "-l", log, "-o", options)

    def stop(self, how: str = "immediate") -> None:
        self.control("stop", "-m", how)

    def kill(self) -> None:
        """Kill all its processes with SIGKILL."""
        lock = self.data / "postmaster.pid"
        first = int(lock.read_text().split()[0])
        os.kill(first, signal.SIGSTOP)  # so that it starts no more
        others = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        every = [first, *map(int, others)]
        for pid in every:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in every:
            wait_for_end(pid)
        # The process counts as alive until somebody asks for its exit code.
        for held in (lock, self.directory / f".s.PGSQL.{self.port}.lock"):
            held.unlink()

    @contextmanager
    def standby(self) -> Iterator[PostgresServer]:
        """Make a server, not started, that has what this one has now, and nothing of later."""
        with _directory() as directory:
            made = replace(self, directory=directory, port=free_port())
            url, data = self.url(), str(made.data)
            self.run("pg_basebackup", "-d", url, "-D", data, "-c", "fast", "--no-sync")
            yield made

    def control(self, *arguments: str) -> None:
        self.run("pg_ctl", "-D", str(self.data), *arguments)

    def run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self.inside, *_as_user(), str(self.programs / program), *arguments],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PROCESS_S,
            check=False,
        )
        log = self.directory / "log"
        assert done.returncode == 0, done.stdout + (log.read_text() if log.exists() else "")


@contextmanager
def postgres_server(
    host: str = "127.0.0.1", inside: tuple[str, ...] = ()
) -> Iterator[PostgresServer]:
    """Run a server within the block, as an unprivileged user if this is root.

    Args:
        host: Where it listens; all who reach it may use it.
        inside: What runs the command that follows it where the server is to be.
    """
    install()
    programs = _programs()
    assert programs is not None
    with _directory() as directory:
        server = PostgresServer(directory, programs, free_port(), host, inside)
        server.run("initdb", "-D", str(server.data), "-U", USER, "-A", "trust", "--no-sync")
        with (server.data / "pg_hba.conf").open("a") as admitted:
            admitted.write(f"host all all {host}/24 trust\n")
        server.start()
        try:
            yield server
        finally:
            if (server.data / "postmaster.pid").exists():
                server.stop()


@contextmanager
def _directory() -> Iterator[Path]:
    # Not in pytest's directories, which other users can't enter.
    directory = Path(tempfile.mkdtemp(prefix="strandline-postgres-"))
    try:
        if os.getuid() == 0:
            shutil.chown(directory, USER)
        yield directory
    finally:
        shutil.rmtree(directory)


def _as_user() -> Sequence[str]:
    return ["runuser", "-u", USER, "--"] if os.getuid() == 0 else []
