"""A server of PostgreSQL, of Debian's packages; whatever is missing for it is an error."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kit.free_port import free_port
from tests.kit.patience import PROCESS_S

USER: Final = "postgres"
_PACKAGES: Final = Path("/usr/lib/postgresql")


def install() -> None:
    """Install the packages if they are missing; needs root then."""
    if not _programs():
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "postgresql"]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


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
        port: Where it listens, on the loopback address.
    """

    directory: Path
    programs: Path
    port: int

    def url(self, database: str = USER) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        # It may be killed, but the machine isn't: nothing needs to be synced to the disk.
        options = f"-p {self.port} -k {self.directory} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = str(self.directory / "log")
        self.control("start", "-w", "-t", str(int(PROCESS_S)), "-l", log, "-o", options)

    def stop(self, how: str = "immediate") -> None:
        self.control("stop", "-m", how)

    def control(self, *arguments: str) -> None:
        self.run("pg_ctl", "-D", str(self.directory / "data"), *arguments)

    def run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*_as_user(), str(self.programs / program), *arguments],
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
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server within the block, as an unprivileged user if this is root."""
    install()
    programs = _programs()
    assert programs is not None
    # Not in pytest's directories, which other users can't enter.
    directory = Path(tempfile.mkdtemp(prefix="strandline-postgres-"))
    server = PostgresServer(directory, programs, free_port())
    try:
        if os.getuid() == 0:
            shutil.chown(directory, USER)
        server.run("initdb", "-D", str(directory / "data"), "-U", USER, "-A", "trust", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


def _as_user() -> Sequence[str]:
    return ["runuser", "-u", USER, "--"] if os.getuid() == 0 else []
