"""Answers of Hudi's view and of ours, made comparable, and how two differ."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from timeline.instant import LOG_COMPACTION


def without_log_compactions(body: Any) -> Any:
    """Return an answer without the log compactions that pend on its timelines.

    A view of Hudi's sees them only when it isn't new any more: not at its making, but after a sync.
    """
    if isinstance(body, dict):
        return {key: without_log_compactions(value) for key, value in body.items()}
    if not isinstance(body, list):
        return body
    return [
        without_log_compactions(item)
        for item in body
        if not (isinstance(item, dict) and item.get("action") == LOG_COMPACTION)
    ]


def as_release_0(body: Any) -> Any:
    """Return an answer with instants as release 0.15 writes them: they have one time."""
    if isinstance(body, dict):
        times = ("requestedTime", "completionTime") if "ts" in body else ()
        return {key: as_release_0(value) for key, value in body.items() if key not in times}
    return [as_release_0(item) for item in body] if isinstance(body, list) else body


def groups_of(body: Iterable[dict[str, str]]) -> set[tuple[str, str]]:
    """Return the groups that an operation pends on."""
    return {(dto["partition"], dto["id"]) for dto in body}


def told(theirs: Any, ours: Any) -> str:
    """Return how two answers differ, as text: what only one of them has."""
    for short in (True, False):
        left, right = set(_parts(theirs, short)), set(_parts(ours, short))
        if left != right:
            break
    return (
        f"\n    only Hudi: {sorted(left - right)!r:.1500}"
        f"\n    only ours: {sorted(right - left)!r:.1500}"
    )


def _parts(body: Any, short: bool, where: str = "") -> Iterator[str]:
    if isinstance(body, list):
        for item in body:
            yield where + (_short(item) if short else _text(item))
    elif isinstance(body, dict) and "instants" in body:
        yield from (where + _text(instant) for instant in body["instants"])
    else:
        for key, value in body.items():
            yield f"{where}{key}"
            yield from _parts(value, short, f"{where}{key}: ")


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _short(item: Any) -> str:
    if "fullPath" in item:
        return f"{os.path.basename(item['fullPath'])} {item['fileLen']}"
    if "logFiles" in item:
        base = item["baseFile"] and _short(item["baseFile"])
        logs = [f"{os.path.basename(log['path'])} {log['len']}" for log in item["logFiles"]]
        return f"{item['fileId']}@{item['baseInstant']}: {base} + {logs}"
    if "slices" in item:
        return f"{item['fileId']}: {[_short(one) for one in item['slices']]}"
    return _text(item)
