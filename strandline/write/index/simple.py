"""``SimpleIndex`` compares keys with the key columns of the partition's newest base files.

Source: Hudi 1.2.0 ``HoodieSimpleIndex``.
"""

from __future__ import annotations

from strandline.write.engine import D
from strandline.write.index.base import Index, LocationRequest
from strandline.write.index.search import search_files


class SimpleIndex(Index):
    """Hudi's index type ``SIMPLE``: needs nothing besides the base files themselves."""

    def locations(self, request: LocationRequest[D]) -> D:
        """Search the files whose key range may hold a key."""
        return search_files(request, by_range=True, by_filter=False)
