"""The JSON form of batched look-ups: queries in a request's body, answers in columns.

A request's query string has ``basepath``, ``lastinstantts`` and ``timelinehash``, as for any other
view route; its body has the queries::

    {"queries": [{"query": "latest_base_files", "partitions": ["2024-01-01", "2024-01-02"]},
                 {"query": "latest_file_slice", "partition": "2024-01-01", "file_ids": ["a", "b"]}]}

The answer is ``{"answers": [...]}`` with a list for each query, which has an object of columns for
each partition. Columns of base files are ``names``, ``sizes`` and ``mtimes``; file id and instant
are parsed from the name. Columns of slices are ``ids``, ``instants`` and ``logs`` (the number of
log files), and the same three of their files: of each slice the base file, then its logs. A base
file or slice that doesn't exist is ``null`` in the first column and 0 in the numbers. This is a
fifth of Hudi's form for base files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from fsview.model.file_group import BaseFile, FileSlice
from fsview.model.file_name import parse_base_name, parse_log_file
from fsview.model.lookup_query import LookupQuery
from timeline.encoding.json_text import dumps, loads
from timeline.errors import BadAnswerError, InputError

LOOKUP_PATH: Final = "/v1/strandline/lookup"
MOST_LOOKUPS: Final = 100_000
"""Most partitions, file groups and queries of one request together."""

_FIELDS: Final = frozenset({"query", "partitions", "partition", "file_ids", "max_instant"})
_SHOWN: Final = 200


def write_queries(queries: Iterable[LookupQuery]) -> bytes:
    """Return the body of a request."""
    return dumps({"queries": [_query_dto(query) for query in queries]})


def _query_dto(query: LookupQuery) -> dict[str, Any]:
    dto: dict[str, Any] = {"query": query.name}
    if query.is_of_groups:
        dto["partition"], dto["file_ids"] = query.partitions[0], query.file_ids
    else:
        dto["partitions"] = query.partitions
    if query.max_instant is not None:
        dto["max_instant"] = query.max_instant
    return dto


def read_queries(body: bytes) -> tuple[LookupQuery, ...]:
    """Return the queries in the body of a request.

    Raises:
        InputError: It isn't the body of a look-up; the message names the field.
    """
    try:
        document = loads(body)
    except (ValueError, RecursionError) as exc:
        raise InputError(f"the body of a look-up isn't JSON: {exc}") from exc
    dtos = document.get("queries") if isinstance(document, dict) else None
    if not isinstance(dtos, list):
        raise InputError('the body of a look-up must be {"queries": [...]}')
    queries = tuple(_read_query(dto) for dto in dtos)
    count = len(queries) + sum(query.answers for query in queries)
    if count > MOST_LOOKUPS:
        raise InputError(f"queries has {count} look-ups; allowed: at most {MOST_LOOKUPS}")
    return queries


def _read_query(dto: object) -> LookupQuery:
    if not isinstance(dto, dict):
        raise InputError(f"queries has {_shown(dto)}; allowed: objects")
    unknown = sorted(map(str, dto.keys() - _FIELDS))
    if unknown:
        raise InputError(
            f"a query has the field {_shown(unknown[0])}; allowed: {', '.join(sorted(_FIELDS))}"
        )
    many, one = dto.get("partitions"), dto.get("partition")
    if (many is None) == (one is None):
        raise InputError("a query needs either partitions or partition")
    max_instant = dto.get("max_instant")
    return LookupQuery(
        _text("query", dto.get("query")),
        _texts("partitions", many) if one is None else (_text("partition", one),),
        _texts("file_ids", dto.get("file_ids", [])),
        None if max_instant is None else _text("max_instant", max_instant),
    )


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"{field}={_shown(value)}; allowed: text")
    try:
        value.encode()
    except UnicodeEncodeError as exc:  # half of a surrogate pair, which JSON can escape
        raise InputError(f"{field}={_shown(value)}; allowed: text in UTF-8") from exc
    return value


def _texts(field: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(f"{field}={_shown(value)}; allowed: a list of texts")
    return tuple(_text(field, item) for item in value)


def _shown(value: object) -> str:
    try:
        return repr(value)[:_SHOWN]
    except RecursionError:
        return type(value).__name__


# Answers.

_Found = Sequence[Any]
_FILE_COLUMNS: Final = ("names", "sizes", "mtimes")
_SLICE_COLUMNS: Final = ("ids", "instants", "logs")
_NO_FILE: Final = (None, 0, 0)
_NO_SLICE: Final = ((None, None, 0), [_NO_FILE])


def write_part(query: LookupQuery, found: _Found) -> bytes:
    """Return one part of a query's answer.

    Args:
        query: The query.
        found: The base files or slices of a partition; ``None`` for groups that don't exist.
    """
    if "base_file" in query.name:
        return dumps(_columns_of_files(found))
    files: list[BaseFile | Any | None] = []
    for each in found:
        files += (None,) if each is None else (each.base_file, *each.log_files)
    return dumps(
        {
            "ids": [None if each is None else each.file_id for each in found],
            "instants": [None if each is None else each.base_instant for each in found],
            "logs": [0 if each is None else len(each.log_files) for each in found],
            **_columns_of_files(files),
        }
    )


def _columns_of_files(files: _Found) -> dict[str, Any]:
    return {
        "names": [None if file is None else file.name for file in files],
        "sizes": [0 if file is None else file.size for file in files],
        "mtimes": [0 if file is None else file.mtime_ms for file in files],
    }


def pick_groups(query: LookupQuery, part: bytes) -> bytes:
    """Return the part of a query of file groups, taken from that of their whole partition.

    Args:
        query: The query.
        part: The part of ``latest_base_files`` or ``latest_file_slices``, respectively.
    """
    columns = loads(part)
    files = list(zip(columns["names"], columns["sizes"], columns["mtimes"], strict=True))
    if "base_file" in query.name:
        by_id = {file[0].partition("_")[0]: file for file in files}
        return dumps(
            _columns(_FILE_COLUMNS, [by_id.get(each, _NO_FILE) for each in query.file_ids])
        )
    start, groups = 0, {}
    for head in zip(columns["ids"], columns["instants"], columns["logs"], strict=True):
        end = start + 1 + head[2]
        groups[head[0]], start = (head, files[start:end]), end
    found = [groups.get(file_id, _NO_SLICE) for file_id in query.file_ids]
    heads = _columns(_SLICE_COLUMNS, [head for head, _ in found])
    return dumps(heads | _columns(_FILE_COLUMNS, [file for _, each in found for file in each]))


def _columns(names: Sequence[str], rows: Sequence[Any]) -> dict[str, Any]:
    values = zip(*rows, strict=True) if rows else ((),) * len(names)
    return dict(zip(names, values, strict=True))


def join_parts(queries: Iterable[LookupQuery], parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a response's body.

    Args:
        queries: The queries.
        parts: The parts of all answers, in the order of the queries and their partitions.
    """
    before = b'{"answers":['
    for query in queries:
        for number in range(query.parts):
            yield (before + b"[" if number == 0 else b",") + next(parts)
        yield b"]" if query.parts else before + b"[]"
        before = b","
    yield b"]}" if before == b"," else before + b"]}"


def read_answers(queries: Sequence[LookupQuery], body: bytes) -> tuple[tuple[Any, ...], ...]:
    """Return for each query its answers: one for each partition or file group.

    Raises:
        BadAnswerError: The body isn't an answer to these queries.
    """
    try:
        answers = loads(body)["answers"]
        return tuple(
            _read_answer(query, parts) for query, parts in zip(queries, answers, strict=True)
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        start = body[:_SHOWN].decode("utf-8", "replace")
        raise BadAnswerError(
            f"{LOOKUP_PATH} answered {start!r} ({len(body)} bytes): {type(exc).__name__}: {exc}"
        ) from exc


def _read_answer(query: LookupQuery, parts: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    read = _read_files if "base_file" in query.name else _read_slices
    found = tuple(
        tuple(read(partition.removesuffix("/"), part))
        for partition, part in zip(query.partitions, parts, strict=True)
    )
    if not query.is_of_groups:
        return found
    if len(found[0]) != len(query.file_ids):
        raise ValueError(f"{len(found[0])} answers for {len(query.file_ids)} file ids")
    return found[0]


def _read_files(partition: str, part: dict[str, Any]) -> Iterator[BaseFile | None]:
    for name, size, mtime in zip(part["names"], part["sizes"], part["mtimes"], strict=True):
        yield None if name is None else _base_file(partition, name, size, mtime)


def _base_file(partition: str, name: str, size: int, mtime_ms: int) -> BaseFile:
    words = name.split("_")
    if len(words) == 3:  # as in nearly all names; the general parser takes twice as long
        file_id, instant = words[0], words[2].partition(".")[0]
    else:
        file_id, instant = parse_base_name(name) or ("", "")
    return BaseFile(partition, name, size, mtime_ms, file_id, instant)


def _read_slices(partition: str, part: dict[str, Any]) -> Iterator[FileSlice | None]:
    if len(part["names"]) != len(part["logs"]) + sum(part["logs"]):
        raise ValueError("the columns of files and of slices don't match")
    if min(part["logs"], default=0) < 0:
        raise ValueError("a number of logs is negative")
    files = zip(part["names"], part["sizes"], part["mtimes"], strict=True)
    for file_id, instant, logs in zip(part["ids"], part["instants"], part["logs"], strict=True):
        name, size, mtime = next(files)
        base = None if name is None else _base_file(partition, name, size, mtime)
        log_files = []
        for _ in range(logs):
            name, size, mtime = next(files)
            log = parse_log_file(partition, name, size, mtime)
            if log is None:
                raise ValueError(f"{name!r} isn't a log's name")
            log_files.append(log)
        if file_id is None:
            yield None
        else:
            yield FileSlice(partition, file_id, instant, base, tuple(log_files))
