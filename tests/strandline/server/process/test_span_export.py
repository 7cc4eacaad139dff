"""The export of spans as ``OTEL_*`` variables say, to a collector, to none, and to a dead one."""

from __future__ import annotations

import logging
import re
import socket
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from strandline.server.process.span_export import SILENT_S, Seldom, begin_export
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.serve_process import ServeProcess
from tests.kit.servers.span_collector import collecting
from tests.strandline.server.process.test_command import run
from timeline.errors import ConfigError

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "lake", "OTEL_TRACES_SAMPLER": "always_on"},
        {"OTEL_TRACES_EXPORTER": ""},
        {"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://127.0.0.1:1"},
        {"OTEL_SDK_DISABLED": "true", ENDPOINT: "http://127.0.0.1:1"},
        {"OTEL_SDK_DISABLED": "True", "OTEL_TRACES_EXPORTER": "rubbish"},
    ],
)
def test_without_an_exporter_nothing_is_exported(environ):
    assert begin_export(environ) is None


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"OTEL_TRACES_EXPORTER": "zipkin"},
            r"OTEL_TRACES_EXPORTER is zipkin, .* allowed here: .*console, none, otlp",
        ),
        ({"OTEL_TRACES_EXPORTER": "otlp,none"}, "is otlp,none; allowed: none, or exporters"),
        (
            {ENDPOINT: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is http/json; allowed: http/protobuf, grpc",
        ),
    ],
)
def test_a_wrong_variable_is_refused(environ, message):
    with pytest.raises(ConfigError, match=message):
        begin_export(environ)


def test_without_the_extra_a_line_says_what_to_install(monkeypatch, caplog):
    # As in an environment that has OpenTelemetry's API, such as gcsfs needs, and no SDK.
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    assert begin_export({"OTEL_TRACES_EXPORTER": "otlp"}) is None
    assert "pip install 'strandline[otel]'" in caplog.text


@pytest.mark.property  # imports the command line
def test_serve_refuses_a_wrong_variable_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    refused = run("--root", str(tmp_path), "--no-token")
    assert refused.exit_code == 2
    assert "OTEL_TRACES_EXPORTER is zipkin" in refused.output


def test_a_logger_of_the_library_is_heard_seldom(caplog):
    clock = ManualClock(0)
    handler = Seldom(clock)
    for _ in range(3):
        for name, message in (("a", "no collector"), ("b", "no room")):
            record = {"name": f"opentelemetry.{name}", "msg": message, "levelno": logging.ERROR}
            handler.handle(logging.makeLogRecord(record))
        clock.advance(int(SILENT_S * 500))
    assert caplog.messages == ["no collector", "no room"] * 2


def ask(server: ServeProcess, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.property  # starts a process
def test_serve_exports_its_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The last ones, too, which were queued when it was told to end."""
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "lake")
        with ServeProcess(tmp_path, tmp_path / "log", "--log-level", "INFO") as server:
            ask(server, "/v1/hoodie/view/timeline/instant/last?basepath=/none")
            ask(server, "/healthz")
        (request,) = collector.spans.all
    assert (request.name, request.kind, request.of) == (
        "GET /v1/hoodie/view/timeline/instant/last",
        "SERVER",
        "lake",
    )
    assert request.attributes["http.response.status_code"] == 403
    assert "spans are exported: otlp" in (tmp_path / "log").read_text()


@pytest.mark.property  # starts a process
def test_a_collector_that_is_not_there_costs_one_line(tmp_path: Path, monkeypatch):
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))  # and doesn't listen
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{refusing.getsockname()[1]}")
        # A span a batch, sent at once.
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        with ServeProcess(tmp_path, tmp_path / "log") as server:
            for _ in range(20):
                assert ask(server, "/v1/hoodie/view/timeline/instant/last?basepath=/none") == 403
    log = (tmp_path / "log").read_text()
    assert len(re.findall(r"opentelemetry\.exporter\S*: .*export", log)) == 1, log
