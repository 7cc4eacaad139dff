from __future__ import annotations

import ctypes

from timeline.malloc_trim import HeapTrim, share_heap, trim_heap

GNU = hasattr(ctypes.CDLL(None), "malloc_trim")


def test_the_heap_is_trimmed_when_a_step_was_freed() -> None:
    trimmed: list[int] = []
    trim = HeapTrim(100, 1000, lambda: trimmed.append(size))
    for size in (0, 1000, 5000, 4900, 4899, 4899, 4800, 4850, 4799, 4798, 4900, 4799, 0):
        trim.report(size, 0)
    assert trimmed == [4899, 4798, 4799, 0]


def test_the_heap_is_trimmed_when_much_has_gone_and_come() -> None:
    trimmed: list[int] = []
    trim = HeapTrim(100, 1000, lambda: trimmed.append(gone))
    for gone in (0, 500, 1000, 1001, 1500, 2001, 2002, 2500, 9000):
        trim.report(5000, gone)
    assert trimmed == [1001, 2002, 9000]


def test_the_heap_is_the_c_librarys() -> None:
    assert trim_heap() in (False, GNU)
    assert share_heap() is GNU
