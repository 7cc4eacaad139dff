"""The trace of a write on a real Spark: from the driver through workers to the service."""

from __future__ import annotations

import pytest

from tests.kit.servers.span_collector import collecting
from tests.kit.spans import Spans, recording
from tests.spark.test_service_markers import SERVED
from tests.spark.test_write import (
    EXECUTORS,
    NEXT,
    client,
    rows,
    table,  # noqa: F401
    written,  # noqa: F401
)

pytestmark = pytest.mark.spark


def test_requests_of_workers_belong_to_the_write(spark, table, monkeypatch):  # noqa: F811
    """The workers record nothing, and pass on the trace that came with their tasks."""
    with collecting() as collector, recording() as recorded:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with client(spark, table, **SERVED, **EXECUTORS) as c:
            c.upsert(rows(spark, NEXT))
        spans = Spans([*recorded.spans.all, *collector.spans.all])
    made = spans.named("POST /v1/hoodie/marker/create-all", "POST /v1/hoodie/marker/create")
    assert made
    assert {tuple(spans.above(span)[1:]) for span in made} == {("step write", "write upsert")}
    assert spans.roots() == ["write upsert"]
