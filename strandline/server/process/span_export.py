"""``SpanExport``: has a process that runs a service export its spans, as ``OTEL_*`` variables say.

The variables are OpenTelemetry's, and its SDK reads them. Without an exporter or an endpoint among
them nothing is imported, whereas the SDK's own default would be a collector on this machine.

Spans are queued and sent in batches by a thread of the SDK. If the collector can't be reached, or
is slow, the queue drops spans; no request waits. What OpenTelemetry logs is rate-limited.

Source: OpenTelemetry's specification of environment variables.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from strandline.version import __version__
from timeline.clock import Clock, SystemClock
from timeline.errors import ConfigError
from timeline.threads import JoinedThread

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

logger = logging.getLogger(__name__)

SERVICE: Final = "strandline"
"""Default of ``OTEL_SERVICE_NAME``."""
FLUSH_S: Final = 2.0
"""How long the end of ``serve`` waits until its last spans are sent."""
CHILD_FLUSH_S: Final = 0.3
"""The same of a driver's child: its driver kills it 2 s after it was told to end."""
SILENT_S: Final = 600.0
"""For how long a logger of OpenTelemetry is silent after a line."""

_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_DISABLED: Final = "OTEL_SDK_DISABLED"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP: Final = "http/protobuf"
_OTLP: Final = {_HTTP: "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""Protocol → name under which the exporter's package registers it."""
_GROUP: Final = "opentelemetry_traces_exporter"


class SpanExport:
    """The export of a process's spans; ``close`` sends the last ones."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider

    def close(self, within_s: float) -> None:
        """Send the spans that are queued, for at most ``within_s`` seconds; record no more."""
        thread = JoinedThread(self._provider.shutdown, "strandline-spans", daemon=True)
        thread.start()
        if not thread.join(within_s):
            logger.warning("the last spans weren't sent within %g s", within_s)


class Seldom(logging.Handler):
    """Passes on a line of each logger at most every ``SILENT_S`` seconds."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._passed_s: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a line on to the root logger, if it is due."""
        now = self._clock.monotonic()
        if now - self._passed_s.get(record.name, -SILENT_S) >= SILENT_S:
            self._passed_s[record.name] = now
            logging.getLogger().handle(record)


def begin_export(environ: Mapping[str, str]) -> SpanExport | None:
    """Begin to export the process's spans, if the environment says so; call it once.

    Raises:
        ConfigError: A variable has a value that isn't allowed.
    """
    names = _exporters(environ)
    if not names:
        return None
    try:
        from opentelemetry import trace  # noqa: PLC0415 - takes 0.1 s, and most export nothing
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        # The variables may be there for other programs.
        logger.warning("no spans are exported: %s; pip install 'strandline[otel]'", error)
        return None
    exporters = [_made(name, environ) for name in names]
    resource = Resource.create({"service.version": __version__, "process.pid": os.getpid()})
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": SERVICE}))
    try:
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        for exporter in exporters:
            provider.add_span_processor(BatchSpanProcessor(exporter))
    except ValueError as error:
        raise ConfigError(f"a variable OTEL_* is wrong: {error}") from error
    library = logging.getLogger("opentelemetry")
    library.addHandler(Seldom())
    library.propagate = False
    trace.set_tracer_provider(provider)
    logger.info("spans are exported: %s", ", ".join(names))
    return SpanExport(provider)


def _exporters(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the exporters that the environment asks for.

    Raises:
        ConfigError: ``none`` stands beside others.
    """
    if environ.get(_DISABLED, "").strip().lower() == "true":
        return ()
    given = environ.get(_EXPORTER, "").strip()
    if not given:
        return ("otlp",) if any(environ.get(name) for name in _ENDPOINTS) else ()
    names = tuple(name.strip() for name in given.split(","))
    if "none" not in names:
        return names
    if len(names) > 1:
        raise ConfigError(
            f"{_EXPORTER} is {given}; allowed: none, or exporters separated by commas"
        )
    return ()


def _made(name: str, environ: Mapping[str, str]) -> SpanExporter:
    """Return an exporter, which reads its settings from the process's environment.

    Raises:
        ConfigError: There is none of that name, or it refuses its settings.
    """
    registered = name
    if name == "otlp":
        protocol = next(filter(None, map(environ.get, _PROTOCOLS)), _HTTP)
        if protocol not in _OTLP:
            raise ConfigError(f"{_PROTOCOLS[1]} is {protocol}; allowed: {', '.join(_OTLP)}")
        registered = _OTLP[protocol]
    found = [*entry_points(group=_GROUP, name=registered)]
    if not found:
        known = {"otlp", "none", *(each.name for each in entry_points(group=_GROUP))}
        raise ConfigError(
            f"{_EXPORTER} is {name}, for which the exporter {registered} isn't installed; allowed"
            f" here: {', '.join(sorted(known))}"
        )
    try:
        exporter: SpanExporter = found[0].load()()
    except (ImportError, TypeError, ValueError) as error:
        raise ConfigError(f"the exporter {registered} can't be used: {error}") from error
    return exporter
