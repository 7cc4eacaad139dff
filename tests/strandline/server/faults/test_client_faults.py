"""Clients that are idle, leave or are killed."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.kit.servers.live_service import known
from tests.kit.servers.raw_http import RawConnection
from tests.strandline.server.faults.service_process import (
    EVERYTHING,
    LATEST,
    MARKERS,
    Service,
    asking,
    local_table,
    made,
    marking,
    stored_markers,
)

pytestmark = pytest.mark.property
INSTANT: Final = "20261121090000000"
IDLE: Final = 2000


@contextmanager
def many_files(wanted: int) -> Iterator[None]:
    """Let this process have so many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"no more than {hard} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.property
def test_two_thousand_idle_connections_slow_no_client(tmp_path: Path) -> None:
    """Half have sent a request and half nothing; a few more have sent half a request."""
    table = local_table(tmp_path / "t")
    asked = asking(LATEST, known(table.storage, partition="a"))
    patience = ("--request-timeout", "3600", "--keep-alive", "3600")
    with (
        Service(tmp_path, tmp_path / "log", *patience) as service,
        many_files(IDLE + 500),
        ExitStack() as stack,
    ):
        before = service.open_files()
        with RawConnection(service.port) as first:
            right = first.ask(asked)
        assert right.status == 200
        idle = [stack.enter_context(RawConnection(service.port)) for _ in range(IDLE)]
        for connection in idle[::2]:
            assert connection.ask(asked) == right
        for connection in idle[1::4]:
            connection.socket.sendall(asked[:100])
        assert service.open_files() >= before + IDLE
        with RawConnection(service.port) as another:
            for _ in range(20):
                assert another.ask(asked) == right
            assert another.ask(marking(table.storage.base_path, made("x"))).body == b"true"
        for connection in idle[1::4]:
            assert connection.ask(asked[100:]) == right
        for connection in [*idle[::100], *idle[3::100]]:
            assert connection.ask(asked) == right
        stack.close()
        with RawConnection(service.port) as another:
            for _ in range(IDLE):
                assert another.ask(asked) == right
                if service.open_files() <= before + 20:
                    break
            else:
                raise AssertionError(f"{service.open_files()} files are open, {before} before")


CLIENT: Final = """
import socket, sys
port, *sent = sys.argv[1:]
kept = []
for said in sent * 5:
    kept.append(socket.create_connection(("127.0.0.1", int(port))))
    kept[-1].sendall(bytes.fromhex(said))
print("sent", flush=True)
sys.stdin.read()
"""
"""Opens connections, sends its arguments, reads no answer, and waits to be killed."""


def test_clients_that_are_killed_leave_nothing_behind(tmp_path: Path) -> None:
    table = local_table(tmp_path / "t")
    asked = asking(LATEST, known(table.storage, partition="a"))
    sent = [
        asked * 40,
        asking(EVERYTHING, known(table.storage, partition="a", maxinstant="9")) * 40,
        asked[:-2],
        asked[:20],
        b"",
        *(marking(table.storage.base_path, made(f"f{n}")) for n in range(10)),
    ]
    with Service(tmp_path, tmp_path / "log") as service:
        with RawConnection(service.port) as sound:
            right = sound.ask(asked)
            before = service.open_files()
            for _ in range(2):
                client = subprocess.Popen(
                    [sys.executable, "-c", CLIENT, str(service.port), *(s.hex() for s in sent)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
                with client:
                    assert client.stdout is not None
                    assert client.stdout.readline() == b"sent\n"
                    client.kill()
                assert sound.ask(asked) == right
            for _ in range(20_000):
                assert sound.ask(asked) == right
                if service.open_files() <= before + 5:
                    break
            else:
                raise AssertionError(f"{service.open_files()} files are open, {before} before")
            named = {"markerdirpath": f"{table.storage.base_path}/.hoodie/.temp/{INSTANT}"}
            # Requests that were sent may still be carried out.
            for _ in range(20_000):
                told = json.loads(sound.ask(asking(f"{MARKERS}/all", named)).body)
                stored = stored_markers(tmp_path / "t")
                if sorted(told) == stored:
                    break
        assert sorted(told) == stored
        assert service.end() == 0
    assert "Traceback" not in (tmp_path / "log").read_text()
