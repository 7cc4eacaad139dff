"""The spans that a test's process records, and spans of any process as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from timeline import tracing


@dataclass(frozen=True)
class Seen:
    """A span that has ended; ids in hexadecimal digits, ``""``: it has no parent."""

    name: str
    trace: str
    id: str
    parent: str
    kind: str
    attributes: dict[str, Any]
    failed: bool
    took_s: float
    of: str = ""


class Spans:
    """Spans of one or several processes, and how they belong together."""

    def __init__(self, found: Sequence[Seen]) -> None:
        self.all = tuple(found)
        self._by_id = {span.id: span for span in self.all}

    def named(self, *names: str) -> list[Seen]:
        return [span for span in self.all if span.name in names]

    def one(self, name: str) -> Seen:
        (span,) = self.named(name)
        return span

    def above(self, span: Seen) -> list[str]:
        """Return the names of a span and of those above it, up to the root."""
        names = [span.name]
        while span.parent in self._by_id:
            span = self._by_id[span.parent]
            names.append(span.name)
        return names

    def roots(self) -> list[str]:
        return [span.name for span in self.all if span.parent not in self._by_id]


class Recording:
    """What this process records."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def spans(self) -> Spans:
        return Spans([_seen(span) for span in self._exporter.get_finished_spans()])


def _seen(span: ReadableSpan) -> Seen:
    context, parent = span.context, span.parent
    return Seen(
        span.name,
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{parent.span_id:016x}" if parent else "",
        span.kind.name,
        dict(span.attributes),
        not span.status.is_unset and not span.status.is_ok,
        (span.end_time - span.start_time) / 1e9,
    )


@contextmanager
def recording(sampler: Sampler | None = None) -> Iterator[Recording]:
    """Record the spans of this process while the block runs."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider)
    try:
        yield Recording(exporter)
    finally:
        tracing.use(None)
        provider.shutdown()
