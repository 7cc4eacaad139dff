"""``strandline serve``: what it refuses in one line, what its help says, how it ends."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from executor_proxy.http import HttpSession
from strandline.__main__ import main
from strandline.settings.command_line import FLAGS
from strandline.settings.setting import REFUSAL_CHARACTERS
from strandline.settings.sources import ServeSettings
from tests.kit.concurrency.patience import PATIENCE_S, pause
from tests.kit.servers.serve_process import environment
from tests.kit.servers.serve_process import run_here as run
from tests.kit.tables import golden
from timeline.errors import StrandlineError

LAST_INSTANT = "/v1/hoodie/view/timeline/instant/last"


BAD_USAGE = [
    ([], "give at least one --root"),
    (["--root", "", "--no-token"], "--root is empty"),
    (
        ["--root", "/no/such/lake", "--no-token", "--require-roots"],
        "--root: /no/such/lake: it is not there, or no directory",
    ),
    (
        ["--root", "/no\nsuch", "--no-token", "--require-roots"],
        r"--root: /no\nsuch: it is not there, or no directory",
    ),
    (["--root", "tape://b/x", "--no-token"], "--root tape://b/x can't be opened: Protocol"),
    (["--root", "/"], "give either --token-file FILE or --no-token"),
    (["--root", "/", "--no-token", "--token-file", "x"], "give either --token-file FILE or"),
    (["--root", "/", "--no-token", "--no-token-from", "::/0"], "give either --token-file FILE"),
    (["--root", "/", "--no-token-from", "ten"], "--no-token-from: network 'ten': 'ten' does"),
    (["--root", "/", "--token-file", "/no/such"], "token file /no/such: No such file"),
    (["--root", "/", "--no-token", "--storage", "rocksdb"], "rocksdb needs a store directory"),
    (["--root", "/", "--no-token", "--store-dir", "/x"], "memory keeps no files"),
    (["--root", "/", "--no-token", "--storage", "sql"], "sql needs a store URL"),
    (["--root", "/", "--no-token", "--store-url", "x://y"], "storage memory has no database"),
    (["--root", "/", "--no-token", "--tls-key", "/x"], "a TLS certificate and its key are"),
    (
        ["--root", "/", "--no-token", "--standby"],
        "--standby is given without --fleet; allowed:",
    ),
    (["--root", "/", "--no-token", "--fleet-ca", "x"], "--fleet-ca is given without --fleet"),
    (["--root", "/", "--no-token", "--advertise", "x"], "--advertise is given without --fleet"),
    *(
        (["--root", "/", "--no-token", flag, "2"], f"{flag} is given without --fleet")
        for flag in (
            "--fleet-copies",
            "--fleet-depth",
            "--fleet-tokens",
            "--fleet-heartbeat",
            "--fleet-dead",
        )
    ),
    (
        ["--root", "/", "--no-token", "--fleet", "etcd://h/f"],
        "the fleet's URL 'etcd://***' can't",
    ),
    (["--root", "/", "--no-token", "--fleet", "zk://h:1/f"], "--fleet needs --advertise URL"),
    (
        ["--root", "/", "--no-token", "--fleet", "zk://h:1/f", "--advertise", "h:1"],
        "--advertise is 'h:1'; allowed: http://HOST:PORT, https://HOST:PORT",
    ),
    (
        ["--root", "/", "--no-token", "--fleet", "zk://h:1/f", "--advertise", "http://h:0"],
        "--advertise is 'http://h:0'; allowed: http://HOST:PORT",
    ),
    (
        ["--root", "/", "--no-token", "--fleet", "zk://h:1/f", "--advertise", "http://[::]:1"],
        "--advertise is 'http://[::]:1'; allowed: a host that others can connect to",
    ),
    (
        ["--root", "/", "--no-token", "--fleet", "zk://h:1/f", "--advertise", "http://bücher.x:1"],
        "--advertise is 'http://bücher.x:1'; allowed: a host in ASCII, such as one with xn--",
    ),
    (["--fleet-copies", "4"], "--fleet-copies is '4'; allowed: integer, 1 to 3"),
    (["--fleet-depth", "0"], "--fleet-depth is '0'; allowed: integer, 1 to 2"),
    (["--fleet-tokens", "0"], "--fleet-tokens is '0'; allowed: integer, 1 to 10000"),
    (["--fleet-dead", "0"], "--fleet-dead is '0'; allowed: number in s, 1 to 3600"),
    (["--memory", "0"], "--memory is '0'; allowed: integer in MiB, 1 or more"),
    (["--memory", "10GB"], "--memory is '10GB'; allowed: integer in MiB, 1 or more"),
    (["--storage", "tape"], "--storage is 'tape'; allowed: memory, spillable, rocksdb, sql"),
    (["--port", "70000"], "--port is '70000'; allowed: integer, 0 to 65535"),
    (["--port", "7\n8"], r"--port is '7\n8'; allowed: integer, 0 to 65535"),
    (["--threads", "1025"], "--threads is '1025'; allowed: integer in threads, -1 to 1024"),
    (["--gzip", "maybe"], "--gzip is 'maybe'; allowed: true, false"),
    (["--log-format", "xml"], "--log-format is 'xml'; allowed: text, json"),
    (["--log-level", "LOUD"], "--log-level is 'LOUD'; allowed: DEBUG, INFO, WARNING, ERROR"),
    (["--config", "/no/such"], "--config /no/such: No such file or directory"),
    (
        ["--root", "/", "--no-token", "--storage-options", "{"],
        "--storage-options is ***; allow",
    ),
    (["--prot", "1"], "No such option"),
    (["--port"], "requires an argument"),
    (["lake"], "unexpected extra argument"),
]


def test_bad_usage_is_refused_in_one_line_with_exit_code_2(subtests: pytest.Subtests) -> None:
    for arguments, said in BAD_USAGE:
        with subtests.test(arguments=arguments):
            result = run(*arguments)
            assert result.exit_code == 2
            assert result.output == result.stderr
            assert result.stderr.startswith("Error: ")
            assert result.stderr.count("\n") == 1
            assert said in result.stderr


def test_a_refusal_fits_a_line_of_a_terminal_whatever_was_given(subtests: pytest.Subtests) -> None:
    """Also of a path, a host or a network, where the refusal has the system's message."""
    for flag in FLAGS:
        with subtests.test(flag=flag.name):
            admitted = () if flag.name in ("--token-file", "--no-token-from") else ("--no-token",)
            given = (flag.name, "/x\n" * 2_000) if flag.metavar else ("--root", "y" * 5_000)
            result = run("--root", "/", "--port", "0", *admitted, *given)
            assert result.exit_code in (1, 2)
            assert len(result.stderr) <= len("Error: \n") + REFUSAL_CHARACTERS
            assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serv"], "Error: No such command 'serv'; the nearest is 'serve'"),
        (["--prot", "serve"], "Error: No such option"),
    ],
)
def test_words_before_the_verb_are_refused_in_one_line(words: list[str], said: str) -> None:
    result = CliRunner().invoke(main, words, prog_name="strandline")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith(said)


def test_without_words_the_verbs_are_shown() -> None:
    result = CliRunner().invoke(main, [], prog_name="strandline")
    assert re.search("^  serve +Serve the tables", result.output, re.MULTILINE)


def test_a_store_directory_that_can_not_be_is_refused_in_one_line(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    arguments = ("--root", str(tmp_path), "--no-token", "--storage")
    for kind in ("spillable", "rocksdb"):
        result = run(*arguments, kind, "--store-dir", str(taken))
        assert result.exit_code == 1
        assert result.stderr.count("\n") == 1
        assert str(taken) in result.stderr


def test_a_password_of_a_store_is_shown_nowhere(tmp_path: Path) -> None:
    for bad in ("postgresql://me:s3cr3t/@db/views", "mysql://me:s3cr3t@db/views"):
        result = run("--root", str(tmp_path), "--no-token", "--storage", "sql", "--store-url", bad)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        assert "a store's URL" in result.stderr
        assert "s3cr3t" not in result.output
    settings = ServeSettings.read({}, {"STRANDLINE_VIEW_STORE_URL": "postgresql://me:s3cr3t@db/"})
    assert settings.redacted()["strandline.view.store.url"] == {
        "value": "***",
        "from": "environment",
    }


def test_the_help_names_every_option_and_the_defaults() -> None:
    said = " ".join(run("--help").output.split())
    for part in (
        "--root PATH",
        "[default: 127.0.0.1]",
        "[default: 26754]",
        "--storage [memory|spillable|rocksdb|sql]",
        "--store-url URL",
        "--store-dir DIR",
        "--memory MIB",
        "[default: 512]",
        "--token-file FILE",
        "--no-token ",
        "--log-format [text|json]",
        "hoodie.embed.timeline.server=false",
        "/healthz answers 200",
    ):
        assert part in said
    assert all(f"{flag.name} " in said for flag in FLAGS)
    assert "--child" not in said


@contextmanager
def on_hang_up(handler: signal.Handlers) -> Iterator[None]:
    """Give processes that are started this handler of SIGHUP, whatever started the tests."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


class Serving:
    """``strandline serve`` as a process; ``first`` is the line in which it says where."""

    def __init__(
        self,
        *arguments: str,
        hang_up: signal.Handlers = signal.SIG_DFL,
        **variables: str,
    ) -> None:
        with on_hang_up(hang_up):
            self.process = subprocess.Popen(
                [sys.executable, "-m", "strandline", "serve", *arguments],
                stderr=subprocess.PIPE,
                env={**environment(), **variables},
                text=True,
            )
        assert self.process.stderr is not None
        self.stderr = self.process.stderr
        self.first = next((line for line in self.stderr if "serving " in line), "")
        self.url = "http" + self.first.split(" on http")[1].split()[0]

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()

    def get(self, path: str, token: str | None = None) -> bytes:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)
        with urllib.request.urlopen(request) as response:
            return bytes(response.read())

    def end(self, number: signal.Signals = signal.SIGTERM) -> str:
        """Tell it to stop; return the rest of its output."""
        self.process.send_signal(number)
        rest = self.stderr.read()
        assert self.process.wait(PATIENCE_S) == 0
        return rest


@pytest.mark.property
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    base = golden.build("cow_basic_v9", 7, tmp_path / "lake" / "t")
    (tmp_path / "token").write_text("s3cret\n")
    lake, token = str(tmp_path / "lake"), str(tmp_path / "token")
    with Serving("--root", lake, "--port", "0", "--token-file", token) as serving:
        told = f"serving {lake} on {serving.url} to bearers of the token"
        assert serving.first == f"{told}, page at {serving.url}/ui/\n"
        assert serving.get("/healthz") == b'{\n  "ok": true\n}\n'
        answer = HttpSession(serving.url, "s3cret").request(
            "POST", "/v1/hoodie/view/loadallpartitions/", {"basepath": str(base)}
        )
        assert answer == b"true"
        rest = serving.end(number)
        assert rest.endswith(" INFO strandline.cli.serve: stopped\n")
        assert "Traceback" not in rest
        assert "s3cret" not in rest


@pytest.mark.property
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_drains_answers_while_its_probes_fail(
    tmp_path: Path, second: signal.Signals
) -> None:
    """A second signal ends it; in the other cases of this file nothing is drained."""
    base = golden.build("cow_basic_v9", 7, tmp_path / "lake" / "t")
    lake = str(tmp_path / "lake")
    options = ("--root", lake, "--port", "0", "--no-token", "--drain", "3600")
    with Serving(*options) as serving:
        assert json.loads(serving.get("/readyz"))["ok"]
        serving.process.send_signal(signal.SIGTERM)
        for path in ("/readyz", "/healthz"):
            while (answer := probe(serving, path))[0] == 200:
                pause()
            assert answer == (503, {"ok": False, "reasons": ["the service is stopping"]})
        assert serving.get(f"{LAST_INSTANT}?basepath={base}")
        assert serving.get("/") == b"Hello Hudi"
        assert serving.end(second).endswith(" INFO strandline.cli.serve: stopped\n")


@pytest.mark.property
def test_draining_ends(tmp_path: Path) -> None:
    options = ("--root", str(tmp_path), "--port", "0", "--no-token", "--drain", "0.2")
    with Serving(*options) as serving:
        assert serving.end().endswith(" INFO strandline.cli.serve: stopped\n")


def probe(serving: Serving, path: str) -> tuple[int, Any]:
    try:
        return 200, json.loads(serving.get(path))
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.property
def test_in_json_every_line_is_an_object_and_nothing_shows_a_secret(tmp_path: Path) -> None:
    """Settings of all sources at once: each takes effect, and the status names its source.

    One root is gone by the time of the probe, so that there is a line of the log to look at. The
    other is only there if the storage options arrive where it is opened.
    """
    archive = tmp_path / "hunter2.zip"
    with zipfile.ZipFile(archive, "w") as writing:
        writing.writestr("lake/readme", "")
    lake, token, config = tmp_path / "lake", tmp_path / "token", tmp_path / "serve.properties"
    lake.mkdir()
    token.write_text("s3cret\n")
    config.write_text(
        "strandline.serve.port=1\nstrandline.serve.log.level=warning\n"
        f"hoodie.embed.timeline.server.threads=3\nstrandline.serve.token.file={token}\n"
        f'strandline.serve.storage.options={{"fo": "{archive}"}}\n'
    )
    arguments = ("--config", str(config), "--log-format", "json", "--port", "0")
    roots = f"{lake}, zip:///lake"
    variables = {"STRANDLINE_SERVE_ROOTS": roots, "STRANDLINE_SERVE_LOG_LEVEL": "info"}
    with Serving(*arguments, **variables) as serving:
        status = serving.get("/v1/strandline/status", "s3cret").decode()
        lake.rmdir()
        pause = threading.Event()
        while b"it is not there" not in serving.get("/healthz"):
            pause.wait(0.1)  # the look at the start counts for a second
        rest = serving.end()
    settings = json.loads(status)["settings"]
    assert settings["strandline.serve.port"] == {"value": "0", "from": "flag"}
    assert settings["strandline.serve.log.level"] == {"value": "INFO", "from": "environment"}
    assert settings["hoodie.embed.timeline.server.threads"] == {"value": "3", "from": "file"}
    assert settings["strandline.serve.token.file"] == {"value": str(token), "from": "file"}
    assert settings["strandline.serve.storage.options"] == {"value": "***", "from": "file"}
    assert settings["strandline.serve.host"] == {"value": "127.0.0.1", "from": "default"}
    lines = [json.loads(line) for line in (serving.first + rest).splitlines()]
    told = f"serving {roots} on {serving.url} to bearers of the token"
    assert lines[0]["message"] == f"{told}, page at {serving.url}/ui/"
    assert [line["message"] for line in lines[1:]] == [
        f"ready, except: root {lake}: it is not there, or no directory",
        "stopped",
    ]
    assert not {"s3cret", "hunter2"} & set(re.findall(r"\w+", status + serving.first + rest))


@pytest.mark.property
def test_a_pipe_as_stderr_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    """Some hundred refusals filled it; then neither answers nor SIGTERM came through."""
    with Serving("--root", str(tmp_path), "--port", "0", "--no-token") as serving:
        fcntl.fcntl(serving.stderr, fcntl.F_SETPIPE_SZ, 4096)
        session = HttpSession(serving.url)
        for number in range(100):
            with pytest.raises(StrandlineError, match="outside the roots"):
                session.get(LAST_INSTANT, {"basepath": f"/nope{number}"})
        assert serving.get("/") == b"Hello Hudi"
        assert serving.get("/healthz") == b'{\n  "ok": true\n}\n'
        assert json.loads(serving.get("/v1/strandline/status"))["log"] == {"dropped": 0}
        serving.process.terminate()
        assert serving.process.wait(PATIENCE_S) == 0
