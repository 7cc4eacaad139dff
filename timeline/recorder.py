"""``Recorder``: makes spans with OpenTelemetry's API; only ``timeline.tracing`` imports it.

Source: W3C Trace Context; OpenTelemetry's semantic conventions for recording errors.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from timeline.tracing import Carrier, Kind, Value

ERROR: Final = "error.type"
"""Attribute: the error's code, or its class."""
_CONTEXT: Final = TraceContextTextMapPropagator()


class RecordedSpan:
    """A span that is current while the block runs."""

    __slots__ = ("_manager", "_span")

    def __init__(self, manager: AbstractContextManager[trace.Span]) -> None:
        self._manager = manager
        self._span: trace.Span = trace.INVALID_SPAN

    def set(self, name: str, value: Value) -> None:
        """Set an attribute."""
        self._span.set_attribute(name, value)

    def fail(self, code: str) -> None:
        """Mark the work as failed."""
        self._span.set_attribute(ERROR, code)
        self._span.set_status(trace.StatusCode.ERROR)

    def __enter__(self) -> RecordedSpan:
        self._span = self._manager.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            self._span.set_attribute(ERROR, str(getattr(error, "code", type(error).__name__)))
        self._manager.__exit__(kind, error, traceback)


class Recorder:
    """Makes the spans of one tracer; thread-safe. The methods are those of ``timeline.tracing``."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def span(
        self,
        name: str,
        attributes: Mapping[str, Value] | None,
        kind: Kind,
        parent: Carrier | None = None,
    ) -> RecordedSpan:
        """Return a span for a block."""
        context = None if parent is None else _CONTEXT.extract(parent)
        return RecordedSpan(
            self._tracer.start_as_current_span(name, context, trace.SpanKind[kind], attributes)
        )

    def note(
        self, name: str, took_s: float, attributes: Mapping[str, Value], kind: Kind, parent: Carrier
    ) -> None:
        """Record work that has just ended, if its parent is valid and sampled."""
        context = _CONTEXT.extract(parent)
        if trace.get_current_span(context).get_span_context().trace_flags.sampled:
            began_ns, of_kind = time.time_ns() - int(took_s * 1e9), trace.SpanKind[kind]
            span = self._tracer.start_span(name, context, of_kind, attributes, start_time=began_ns)
            span.end()

    def headers(self) -> dict[str, str]:
        """Return the headers of the current trace."""
        found: dict[str, str] = {}
        _CONTEXT.inject(found)
        return found

    def is_sampled(self) -> bool:
        """Whether the current span is sampled, here or in the process that continues here."""
        # Not whether it is recording: work may go on after its request was answered.
        return trace.get_current_span().get_span_context().trace_flags.sampled


def recorder_of(provider: trace.TracerProvider | None) -> Recorder | None:
    """Return what records with a provider; ``None``: with the global one, if it is set."""
    chosen = provider or trace.get_tracer_provider()
    if isinstance(chosen, trace.ProxyTracerProvider):
        return None
    return Recorder(chosen.get_tracer("strandline"))
