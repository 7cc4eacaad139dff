"""Spans of OpenTelemetry, for what a process does: writes, requests, syncs, loads, storage calls.

An executor has neither OpenTelemetry's API nor its SDK, so Strandline imports none of it by itself.
A process that records spans has imported the API already, to set its provider
(``timeline.recorder``). Until then a span costs a look into ``sys.modules``.

A trace goes on in other processes: ``headers`` returns the W3C Trace Context of the current span,
which tasks and requests carry. A process that records nothing passes it on from a task to its
requests.

Only writes, table services and requests may begin a trace. Everything else is a ``child`` of a
sampled span, or isn't recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from timeline.recorder import Recorder

Carrier = Mapping[str, str]
"""The headers that continue a trace, by name in lower case; empty: none."""
Value = str | int | float | bool
Kind = Literal["INTERNAL", "SERVER", "CLIENT"]

TRACEPARENT: Final = "traceparent"
HEADERS: Final = (TRACEPARENT, "tracestate")

TABLE: Final = "strandline.table"
"""Attribute: the table's base path."""
INSTANT: Final = "strandline.instant"
"""Attribute: requested time of the instant that the work made, or ended at."""
CAUSE: Final = "strandline.cause"
"""Attribute: why it was done, as in the metrics."""

_API: Final = "opentelemetry.trace"
_carried: Final[ContextVar[Carrier]] = ContextVar("carried", default=MappingProxyType({}))
"""The trace of a task, in a process that records nothing."""


class Span(Protocol):
    """A block of work; the context manager ends it, and records an error of the block."""

    def set(self, name: str, value: Value) -> None:
        """Set an attribute."""

    def fail(self, code: str) -> None:
        """Mark the work as failed, although the block raises nothing."""

    def __enter__(self) -> Span: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class _Unrecorded:
    """A span that nothing records."""

    __slots__ = ()

    def set(self, name: str, value: Value) -> None:
        """Do nothing."""

    def fail(self, code: str) -> None:
        """Do nothing."""

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None:
        pass


UNRECORDED: Final = _Unrecorded()


class _Process:
    """What records the spans of this process; ``None``: nothing yet."""

    recorder: Recorder | None = None


_process: Final = _Process()


def use(provider: TracerProvider | None) -> None:
    """Record spans with a provider from now on; ``None``: with the global one, once it is set."""
    from timeline.recorder import recorder_of  # noqa: PLC0415 - imports OpenTelemetry

    _process.recorder = None if provider is None else recorder_of(provider)


def _recorder() -> Recorder | None:
    """Return what records the spans of this process; ``None``: nothing."""
    if _process.recorder is None and _API in sys.modules:
        from timeline.recorder import recorder_of  # noqa: PLC0415 - imports OpenTelemetry

        # Libraries such as gcsfs import the API and set no provider.
        _process.recorder = recorder_of(None)
    return _process.recorder


def is_on() -> bool:
    """Whether this process records spans."""
    return _recorder() is not None


def is_sampled() -> bool:
    """Whether a ``child`` would be recorded now."""
    recorder = _recorder()
    return recorder is not None and recorder.is_sampled()


def span(
    name: str,
    attributes: Mapping[str, Value] | None = None,
    *,
    kind: Kind = "INTERNAL",
    parent: Carrier | None = None,
) -> Span:
    """Return a span for a block, which may begin a trace.

    Args:
        name: Its name, one of few.
        attributes: Its attributes.
        kind: Its kind.
        parent: The headers of a request or a task that it continues the trace of; invalid ones
            begin a new trace. ``None``: the current span is its parent.
    """
    recorder = _recorder()
    if recorder is None:
        return UNRECORDED
    return recorder.span(name, attributes, kind, parent)


def child(
    name: str, attributes: Mapping[str, Value] | None = None, *, kind: Kind = "INTERNAL"
) -> Span:
    """Return a span for a block within a sampled one; else it isn't recorded.

    Arguments as of ``span``.
    """
    return span(name, attributes, kind=kind) if is_sampled() else UNRECORDED


def note(
    name: str, took_s: float, attributes: Mapping[str, Value], *, kind: Kind, parent: Carrier
) -> None:
    """Record work that has just ended, if its trace is sampled; arguments as of ``span``.

    Args:
        name: Its name.
        took_s: How long it took, in seconds.
        attributes: Its attributes.
        kind: Its kind.
        parent: The headers of the request that it continues the trace of.
    """
    recorder = _recorder()
    if recorder is not None:
        recorder.note(name, took_s, attributes, kind, parent)


def headers() -> dict[str, str]:
    """Return the headers by which another process continues the current trace; empty: none."""
    recorder = _recorder()
    return dict(_carried.get()) if recorder is None else recorder.headers()


@contextmanager
def continued(carrier: Carrier, name: str, attributes: Mapping[str, Value]) -> Iterator[None]:
    """Continue the trace of a task by a span while the block runs.

    Args:
        carrier: What ``headers`` returned in whichever process.
        name: The span's name.
        attributes: The span's attributes.
    """
    token = _carried.set(carrier)
    try:
        with span(name, attributes, parent=carrier):
            yield
    finally:
        _carried.reset(token)
