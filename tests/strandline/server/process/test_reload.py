"""SIGHUP has a service read token, certificate, roots, limits and log level again."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
from contextlib import ExitStack
from errno import ENXIO
from functools import partial
from pathlib import Path
from typing import Final, TextIO

import pytest

from executor_proxy.http import HttpSession
from executor_proxy.seat_ring import Layout
from strandline.cli.serve import HangUp, Reload, certificate_of
from strandline.server.http.limits import LEAST_CONNECTIONS, RESERVED_FILES
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.log_format import LogWriter, TextFormatter
from strandline.server.process.composition_root import Parts
from strandline.server.process.fleet_part import FleetOptions, FleetPart
from strandline.server.process.options import PartsOptions
from strandline.settings.sources import ServeSettings
from tests.kit.concurrency.patience import PATIENCE_S, pause
from tests.kit.papers import Papers
from tests.kit.servers.free_port import free_port
from tests.kit.servers.live_service import HttpClient, running
from tests.kit.servers.serve_process import environment
from tests.kit.tables import golden
from tests.strandline.server.process.test_command import LAST_INSTANT, Serving, on_hang_up

STATUS = "/v1/strandline/status"
RELOADED: Final = re.compile(r"\d{4}-\S+ \S+ INFO strandline\.cli\.serve: SIGHUP: (.*)\n?")
"""A line of the log, with time, level and logger."""


class Place:
    """A service with its settings in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config, self.token = folder / "serve.properties", folder / "token"
        self.token.write_text("first\n")
        self.token.chmod(0o600)
        for lake in ("one", "two"):
            golden.build("cow_basic_v9", 0, folder / lake / "t")
        self.write(roots=["one"])

    def write(self, roots: list[str], **settings: str) -> None:
        listed = ",".join(f"{self.folder}/{root}" for root in roots)
        lines = [f"strandline.serve.roots={listed}", f"strandline.serve.token.file={self.token}"]
        lines += [f"strandline.serve.{name}={value}" for name, value in settings.items()]
        self.config.write_text("\n".join(lines))


def test_a_signal_before_the_service_answers_reloads_as_soon_as_it_does() -> None:
    hang_up, reloads = HangUp(), []
    for _ in range(2):
        hang_up.heard(signal.SIGHUP, None)
    hang_up.leads_to(lambda: reloads.append("one"))
    assert reloads == ["one"]
    hang_up.heard(signal.SIGHUP, None)
    assert reloads == ["one", "one"]


def test_the_signal_is_heeded_within_the_block_but_not_under_nohup() -> None:
    for handler, expected in ((signal.SIG_DFL, ["one"]), (signal.SIG_IGN, [])):
        reloads: list[str] = []
        with on_hang_up(handler):
            with HangUp() as hang_up:
                signal.raise_signal(signal.SIGHUP)
                hang_up.leads_to(partial(reloads.append, "one"))
            assert (signal.getsignal(signal.SIGHUP), reloads) == (handler, expected)


@pytest.mark.property
def test_a_signal_before_the_settings_are_read_ends_nothing(tmp_path: Path) -> None:
    place, pipe = Place(tmp_path), tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "strandline", "serve", "--config", str(pipe), "--port", "0"]
    with on_hang_up(signal.SIG_DFL), ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        late = threading.Timer(PATIENCE_S, process.kill)  # ends each wait for the process
        late.start()
        stack.callback(late.cancel)
        assert process.stderr is not None
        with opened_by(process, pipe) as settings:
            process.send_signal(signal.SIGHUP)
            settings.write(place.config.read_text())
        assert "serving " in next(process.stderr)
        with opened_by(process, pipe) as settings:
            settings.write(place.config.read_text())
        found = RELOADED.fullmatch(next(process.stderr))
        assert found is not None
        assert found[1] == "nothing has changed"
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def opened_by(process: subprocess.Popen[str], pipe: Path) -> TextIO:
    """Open a pipe to write as soon as a process has opened it to read."""
    while True:
        try:
            return os.fdopen(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "w")
        except OSError as nobody_reads:
            if nobody_reads.errno != ENXIO or process.poll() is not None:
                raise
        pause()


@pytest.mark.property
def test_a_certificate_that_is_replaced_while_the_service_starts_is_used(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = Papers(tmp_path / "old"), Papers(tmp_path / "new")
    files = {"tls_certificate": old.certificate, "tls_key": old.key}
    level = logging.getLevelName(logging.getLogger().level)
    given = {"root": (str(tmp_path),), "no_token": "true", "log_level": level, **files}
    settings = ServeSettings.read(given, {})
    before = certificate_of(settings)
    server = ServiceServer(Parts(PartsOptions((str(tmp_path),), None)), ServerOptions(**files))
    for name in ("certificate", "key"):
        Path(getattr(old, name)).write_bytes(Path(getattr(new, name)).read_bytes())
    reading, writing = os.pipe()
    log = LogWriter(writing, TextFormatter())
    with running(server), os.fdopen(reading) as read:
        reload = Reload(given, settings, server.parts, server, log, None, before)
        for _ in range(2):
            reload.run()
        log.flush()
        os.close(writing)
        said = [RELOADED.sub(r"\1", line) for line in read]
        assert said == [f"the certificate has changed ({old.certificate})", "nothing has changed"]
        assert HttpSession(server.url, ca_file=new.ca).get("/", {}) == b"Hello Hudi"


def test_without_a_signal_nothing_is_reloaded() -> None:
    reloads: list[str] = []
    HangUp().leads_to(lambda: reloads.append("one"))
    assert reloads == []


def reloaded(serving: Serving) -> tuple[str, list[str]]:
    """Return what a service says to SIGHUP, and the lines of its log before that."""
    serving.process.send_signal(signal.SIGHUP)
    before = []
    for line in serving.stderr:
        if found := RELOADED.fullmatch(line):
            return found[1], before
        before.append(line)
    raise AssertionError(f"it ended with {serving.process.wait(PATIENCE_S)}: {before}")


def is_served(serving: Serving, table: Path, token: str) -> bool:
    try:
        serving.get(f"{LAST_INSTANT}?basepath={table}", token)
    except urllib.error.HTTPError as error:
        return error.code not in (401, 403, 503)
    return True


@pytest.mark.property
def test_what_is_changed_takes_effect_and_what_is_wrong_does_not(tmp_path: Path) -> None:
    place = Place(tmp_path)
    one, two = tmp_path / "one" / "t", tmp_path / "two" / "t"
    with Serving("--config", str(place.config), "--port", "0") as serving:
        assert reloaded(serving) == ("nothing has changed", [])
        place.token.write_text("second\n")
        place.token.chmod(0o644)
        said, (warning,) = reloaded(serving)
        assert said == "the token has changed"
        assert f"token file {place.token} can be read by every user" in warning
        assert not is_served(serving, one, "first")
        assert is_served(serving, one, "second")
        place.token.write_text("\n")
        place.token.chmod(0o600)
        place.write(["two", "late"], **{"log.level": "WARNING"})
        said, _ = reloaded(serving)
        assert said == (
            f"kept as before: token file {place.token}: it must hold one word of printable ASCII,"
            " or two on a line each;"
            f" root {tmp_path}/two is served; root {tmp_path}/late is served once it is there;"
            f" root {tmp_path}/one isn't served any more; the log level is WARNING"
        )
        assert is_served(serving, two, "second")
        assert not is_served(serving, one, "second")
        golden.build("cow_basic_v9", 0, tmp_path / "late" / "t")
        while not is_served(serving, tmp_path / "late" / "t", "second"):
            pause()  # it is looked for every few seconds
        place.config.write_text("strandline.serve.portt=1\n")
        said, _ = reloaded(serving)
        assert said.startswith(f"nothing is read again: {place.config}: strandline.serve.portt")
        assert is_served(serving, two, "second")
        rest = serving.end()
        assert "stopped" not in rest  # which is logged at INFO


@pytest.mark.property
def test_limits_are_read_again(tmp_path: Path) -> None:
    """Those of open connections, too; a value that isn't allowed changes nothing."""
    place = Place(tmp_path)
    with (
        Serving("--config", str(place.config), "--port", "0") as serving,
        HttpClient(int(serving.url.rpartition(":")[2]), "first") as client,
    ):
        headers = {f"X-{number}": "x" for number in range(30)}
        assert client.request("GET", "/healthz", headers=headers).status == 200
        added = "\nstrandline.service.header.max.count=20\nstrandline.service.keep.alive.secs=7"
        place.config.write_text(place.config.read_text() + added)
        assert reloaded(serving)[0] == (
            "strandline.service.header.max.count is 20; strandline.service.keep.alive.secs is 7"
        )
        assert client.request("GET", "/healthz", headers=headers).status == 431
        shown = json.loads(serving.get(STATUS, "first"))["settings"]
        assert shown["strandline.service.header.max.count"]["value"] == "20"
        assert reloaded(serving)[0] == "nothing has changed"
        place.config.write_text(place.config.read_text().replace("count=20", "count=2"))
        assert reloaded(serving)[0].startswith("nothing is read again: ")
        assert client.request("GET", "/healthz", headers=headers).status == 431


@pytest.mark.property
def test_under_nohup_the_signal_has_no_effect(tmp_path: Path) -> None:
    place = Place(tmp_path)
    config = str(place.config)
    with Serving("--config", config, "--port", "0", hang_up=signal.SIG_IGN) as serving:
        place.token.write_text("second\n")
        serving.process.send_signal(signal.SIGHUP)
        assert is_served(serving, tmp_path / "one" / "t", "first")
        assert "SIGHUP" not in serving.end()


def test_in_a_fleet_neither_roots_nor_the_token_alone_change(tmp_path: Path) -> None:
    place, level = Place(tmp_path), {"log.level": logging.getLevelName(logging.getLogger().level)}
    place.write(["one"], **level)
    given = {"config": str(place.config)}
    settings = ServeSettings.read(given, {})
    parts = Parts(PartsOptions((f"{tmp_path}/one",), "first"))
    server = ServiceServer(parts, ServerOptions())
    reading, writing = os.pipe()
    log = LogWriter(writing, TextFormatter())
    with running(server), ExitStack() as stack:
        options = FleetOptions(f"sqlite://{tmp_path}/fleet.db", server.url, Layout())
        fleet = FleetPart(options, ["first"], [f"{tmp_path}/one"])
        stack.callback(fleet.close)
        reload = Reload(given, settings, parts, server, log, fleet, ())
        reload.run()
        place.token.write_text("second\n")
        place.write(["one", "two"], **level)
        reload.run()
        assert parts.views.roots() == (f"{tmp_path}/one",)
    log.flush()
    os.close(writing)
    with os.fdopen(reading) as read:
        assert [RELOADED.sub(r"\1", line) for line in read.read().splitlines()] == [
            "nothing has changed",
            f"kept as before: the token in {place.token}: all servers of a fleet have the"
            " same; allowed: a second one below it, at all servers; then the two in the other"
            f" order; then the second alone; kept as before: roots {tmp_path}/one, {tmp_path}/two:"
            " all servers of a group have the same",
        ]
    assert parts.admission.bears_token(b"Bearer first")


@pytest.mark.property
def test_a_fleet_changes_its_token_without_a_stop(tmp_path: Path) -> None:
    """Server after server, three times; requests are passed on between any two steps."""
    place = Place(tmp_path)
    place.write(["one"])
    table = {"basepath": f"{tmp_path}/one/t"}
    with ExitStack() as stack:
        servers = []
        for _ in range(2):
            url = f"http://127.0.0.1:{free_port()}"
            options = ("--fleet", f"sqlite://{tmp_path}/fleet.db", "--advertise", url)
            port = url.rpartition(":")[2]
            config = ("--config", str(place.config), "--port", port, "--fleet-heartbeat", "0.3")
            servers.append(stack.enter_context(Serving(*options, *config, "--fleet-dead", "3")))

        def seats(serving: Serving, token: str) -> set[int | None]:
            found = json.loads(serving.get(STATUS, token))["fleet"]["members"]
            return {each["seat"] for each in found if each["ready"]}

        def check(*tokens: str) -> None:
            for token in tokens:
                for serving in servers:
                    while seats(serving, token) != {0, 1}:
                        pause()
                    assert HttpSession(serving.url, token).get(LAST_INSTANT, table)
            forwarded = [json.loads(each.get(STATUS, tokens[0]))["forwarded"] for each in servers]
            assert sum(each.get("answered", 0) for each in forwarded) > 0
            assert sum(each.get("refused", 0) for each in forwarded) == 0

        check("first")
        for text, said, tokens in (
            ("first\nsecond\n", "the second token has changed", ("first",)),
            ("second\nfirst\n", "the token has changed", ("first", "second")),
            ("second\n", "the second token has changed", ("second",)),
        ):
            place.token.write_text(text)
            for serving in servers:
                told, lines = reloaded(serving)
                assert told == said
                assert not any("another token" in line for line in lines)
                check(*tokens)
        for serving in servers:
            assert not is_served(serving, tmp_path / "one" / "t", "first")
            assert "another token" not in serving.end()


def with_files(most: int, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "strandline", "serve", "--no-token", *arguments]
    return ["sh", "-c", f'ulimit -n {most} && exec "$@"', "sh", *command]


@pytest.mark.property
def test_too_few_open_files_are_refused(tmp_path: Path) -> None:
    told = subprocess.run(
        with_files(RESERVED_FILES, "--root", str(tmp_path), "--port", "0"),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    least = RESERVED_FILES + LEAST_CONNECTIONS
    said = f"the limit of open files (ulimit -n) is {RESERVED_FILES}; allowed: {least} or more"
    assert (told.returncode, told.stderr.splitlines()[-1]) == (2, f"Error: {said}")


@pytest.mark.property
def test_silent_clients_leave_descriptors_for_the_rest(tmp_path: Path) -> None:
    """The readiness check of a spilling store makes a file."""
    least = RESERVED_FILES + LEAST_CONNECTIONS
    store = ("--storage", "spillable", "--store-dir", str(tmp_path / "store"))
    (tmp_path / "lake").mkdir()
    process = subprocess.Popen(
        with_files(least, "--root", str(tmp_path / "lake"), "--port", "0", *store),
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    with process, ExitStack() as silent:
        assert process.stderr is not None
        first = next(line for line in process.stderr if line.startswith("serving "))
        url = "http" + first.split(" on http")[1].split()[0]
        port = int(url.rpartition(":")[2])
        for _ in range(least):
            silent.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
        assert b'"ok": true' in HttpSession(url).get("/healthz", {})
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
