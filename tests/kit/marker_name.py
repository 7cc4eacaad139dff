"""Names of markers as Hudi's writers send them."""

from __future__ import annotations


def marker_name(
    instant: str, file_id: object = "f", partition: str = "p", kind: str = "CREATE"
) -> str:
    """Return the marker of a base file of the write at ``instant``."""
    folder = f"{partition}/" if partition else ""
    return f"{folder}{file_id}_0-1-2_{instant}.parquet.marker.{kind}"
