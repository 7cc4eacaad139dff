"""The garbage collection of a test that watches finalizers, weak references or memory."""

from __future__ import annotations

import gc


def collect_garbage() -> None:
    """Collect all garbage, and exempt what lives from later collections.

    So the objects of a run, a million in the end, are traversed once and not in each such test,
    which would take 0.2 s. What the test itself holds then is freed by its reference counts alone.
    """
    gc.collect()
    gc.freeze()
