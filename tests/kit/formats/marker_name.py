"""Markers as Hudi's writers name and create them."""

from __future__ import annotations

from concurrent.futures import Future

from strandline.server.marker.registry import MarkerService
from tests.kit.concurrency.patience import PATIENCE_S


def marker_name(
    instant: str, file_id: object = "f", partition: str = "p", kind: str = "CREATE"
) -> str:
    """Return the marker of a base file of the write at ``instant``."""
    folder = f"{partition}/" if partition else ""
    return f"{folder}{file_id}_0-1-2_{instant}.parquet.marker.{kind}"


def create(
    service: MarkerService, directory: str, name: str, *, refusable: bool = False
) -> Future[bool]:
    """Create a marker in a directory that may not be known yet."""
    created: Future[bool] = Future()
    while not service.submit(directory, {name: created}, refusable=refusable):
        service.find(directory).result(PATIENCE_S)
    return created
