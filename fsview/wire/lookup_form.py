"""The JSON form of batched look-ups: queries in a request's body, answers in columns.

A request's query string has ``basepath``, ``lastinstantts`` and ``timelinehash``, as for any other
view route; its body has the queries::

    {"queries": [{"query": "latest_base_files", "partitions": ["2024-01-01", "2024-01-02"]},
                 {"query": "latest_file_slice", "partition": "2024-01-01", "file_ids": ["a", "b"]}]}

No look-up may be repeated. The answer is ``{"answers": [...]}`` with a list for each query, which
has an object of columns (``fsview.wire.column_form``) for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from fsview.model.file_system_view import LookupQuery
from fsview.wire.column_form import read_columns
from timeline.encoding.json_text import bounded_loads, dumps, loads
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
    _check_repeats(queries)
    return queries


def _check_repeats(queries: Iterable[LookupQuery]) -> None:
    """Refuse repeated look-ups: a short request for one large answer many times."""
    seen = set()
    for query in queries:
        for arguments in query.arguments():
            asked = (query.name, *arguments.values())
            if asked in seen:
                raise InputError(f"{query.name} of {_shown(arguments)} is asked twice")
            seen.add(asked)


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
        answers = _list_in(bounded_loads(body)["answers"])
        return tuple(
            _read_answer(query, parts) for query, parts in zip(queries, answers, strict=True)
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        start = body[:_SHOWN].decode("utf-8", "replace")
        raise BadAnswerError(
            f"{LOOKUP_PATH} answered {start!r} ({len(body)} bytes): {type(exc).__name__}: {exc}"
        ) from exc


def _list_in(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"a {type(value).__name__} where a list belongs")
    return value


def _read_answer(query: LookupQuery, parts: Any) -> tuple[Any, ...]:
    found = tuple(
        read_columns(query.name, partition, part)
        for partition, part in zip(query.partitions, _list_in(parts), strict=True)
    )
    if not query.is_of_groups:
        return found
    if len(found[0]) != len(query.file_ids):
        raise ValueError(f"{len(found[0])} answers for {len(query.file_ids)} file ids")
    for file_id, each in zip(query.file_ids, found[0], strict=True):
        if each is not None and each.file_id != file_id:
            raise ValueError(f"the answer for {file_id!r} is of {each.file_id!r}")
    return found[0]
