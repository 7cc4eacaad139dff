"""The form of batched look-ups: queries and answers both ways, and bodies that aren't any."""

from __future__ import annotations

import json
from itertools import product

import pytest

from fsview.local_view import LocalView
from fsview.model.file_system_view import OF_FILE_IDS, OF_PARTITIONS, WITH_INSTANT, LookupQuery
from fsview.query.queries import QUERIES
from fsview.table_view import TableView
from fsview.wire.column_form import pick_groups, write_columns
from fsview.wire.json_form import PathForms
from fsview.wire.lookup_form import (
    MOST_LOOKUPS,
    join_parts,
    read_answers,
    read_queries,
    write_queries,
)
from fsview.wire.routes import BY_NAME, FIXED_BY_TIMELINE
from tests.kit.storage.troubled_storage import LATEST, partitions_of
from tests.kit.tables import golden
from timeline.encoding.json_text import UNCHECKED_BYTES
from timeline.errors import BadAnswerError, InputError

NOWHERE = "no-such-group"


def queries_of(view: LocalView, partitions: tuple[str, ...]) -> list[LookupQuery]:
    """Return every kind of query for all partitions and file groups."""
    found = [
        LookupQuery(name, partitions, max_instant=LATEST if name in WITH_INSTANT else None)
        for name in sorted(OF_PARTITIONS)
    ]
    for partition in partitions:
        ids = (NOWHERE, *(group.file_id for group in view.all_file_groups(partition)), NOWHERE)
        found += [LookupQuery(name, (partition,), ids) for name in sorted(OF_FILE_IDS)]
    return found


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_answers_come_back_as_they_were(scenario: str) -> None:
    """All golden tables: logs, pending compactions and replaced groups among them."""
    view = LocalView.newest(TableView(golden.GoldenStorage(scenario, golden.steps(scenario)[-1])))
    queries = queries_of(view, partitions_of(scenario))
    answers = view.look_up(queries)
    unique = [query.without_repeats() for query in queries]
    assert read_queries(write_queries(unique)) == tuple(unique)
    parts = []
    for query, found in zip(queries, answers, strict=True):
        of_query = (found,) if query.is_of_groups else found
        parts += [write_columns(query.name, part) for part in of_query]
    body = b"".join(join_parts(queries, iter(parts)))
    assert read_answers(queries, body) == answers
    for query, part in zip(queries, parts, strict=False):
        assert json.loads(part).keys() >= {"names", "sizes", "mtimes"}, query


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_groups_are_picked_from_a_partition_as_they_would_be_asked_for(scenario: str) -> None:
    view = LocalView.newest(TableView(golden.GoldenStorage(scenario, golden.steps(scenario)[-1])))
    for query in queries_of(view, partitions_of(scenario)):
        if query.is_of_groups:
            whole = LookupQuery(f"{query.name}s", query.partitions)
            part = write_columns(whole.name, view.look_up([whole])[0][0])
            (found,) = view.look_up([query])
            picked = pick_groups(query.name, query.file_ids, part)
            assert json.loads(picked) == json.loads(write_columns(query.name, found))


def test_look_ups_are_methods_whose_answers_the_timeline_determines() -> None:
    assert QUERIES.keys() & FIXED_BY_TIMELINE >= OF_PARTITIONS | OF_FILE_IDS
    assert WITH_INSTANT <= OF_PARTITIONS


def test_no_queries_have_no_answers() -> None:
    assert read_queries(write_queries([])) == ()
    assert read_answers([], b"".join(join_parts([], iter(())))) == ()
    nothing = [LookupQuery("latest_base_files", ()), LookupQuery("latest_base_files", ("a",))]
    body = b"".join(join_parts(nothing, iter([b'{"names":[],"sizes":[],"mtimes":[]}'])))
    assert read_answers(nothing, body) == ((), ((),))


QUERY = {"query": "latest_base_files", "partitions": ["a"]}
GROUPS = {"query": "latest_base_file", "partition": "a", "file_ids": ["x"]}


MALFORMED = [
    ("x", "queries has 'x'; allowed: objects"),
    ({"query": "latest_base_files"}, "either partitions or partition"),
    (QUERY | {"partition": "a"}, "either partitions or partition"),
    (QUERY | {"query": "timeline"}, "query='timeline' is no look-up; allowed: latest_base"),
    (QUERY | {"query": 1}, "query=1; allowed: text"),
    (QUERY | {"partitions": "a"}, "partitions='a'; allowed: a list"),
    (QUERY | {"partitions": [None]}, "partitions=None; allowed: text"),
    (QUERY | {"partitions": ["\ud800"]}, "body|partitions="),
    (QUERY | {"max_instant": "1"}, "latest_base_files takes no max_instant"),
    (QUERY | {"query": "latest_base_files_before_or_on"}, "needs max_instant"),
    (QUERY | {"file_ids": ["x"]}, "takes no file_ids"),
    (QUERY | {"more": 1}, "field 'more'; allowed: file_ids"),
    (GROUPS | {"file_ids": {"x": 1}}, "file_ids={'x': 1}; allowed: a list"),
    (GROUPS | {"partition": ["a"]}, "partition=.*; allowed: text"),
    (GROUPS | {"partition": None, "partitions": ["a", "b"]}, "asked of one partition, not 2"),
]


def test_a_malformed_query_is_refused_by_its_field(subtests: pytest.Subtests) -> None:
    for query, message in MALFORMED:
        with subtests.test(query=query), pytest.raises(InputError, match=message):
            read_queries(json.dumps({"queries": [query]}).encode())


@pytest.mark.parametrize(
    ("queries", "repeated"),
    [
        ([QUERY | {"partitions": ["a", "b", "a"]}], "{'partition': 'a'}"),
        ([QUERY, GROUPS, QUERY], "{'partition': 'a'}"),
        ([GROUPS | {"file_ids": ["x", "x"]}], "{'partition': 'a', 'file_id': 'x'}"),
    ],
)
def test_a_repeated_look_up_is_refused(queries: list[dict], repeated: str) -> None:
    """A request of 700 KB could ask for a large partition 99,999 times."""
    with pytest.raises(InputError) as caught:
        read_queries(json.dumps({"queries": queries}).encode())
    assert f" of {repeated} is asked twice" in str(caught.value)


def test_a_body_without_queries_is_refused(subtests: pytest.Subtests) -> None:
    for body in [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'{"queries": {}}',
        b"\xff",
        b"[" * 100_000,
        b"NaN",
        b"{",
    ]:
        with subtests.test(body=body), pytest.raises(InputError, match="the body of a look-up"):
            read_queries(body)


@pytest.mark.property
def test_the_number_of_look_ups_is_bounded() -> None:
    most = LookupQuery("latest_base_files", tuple(map(str, range(MOST_LOOKUPS - 1))))
    assert read_queries(write_queries([most])) == (most,)
    with pytest.raises(InputError, match=f"at most {MOST_LOOKUPS}"):
        read_queries(write_queries([most, most]))


def test_a_body_that_is_no_answer_is_refused(subtests: pytest.Subtests) -> None:
    for body in [
        b"",
        b"[]",
        b'{"answers": []}',
        b'{"answers": [[]]}',
        b'{"answers": [[{}]]}',
        b'{"answers": [[{"names": ["a_0_1.parquet"], "sizes": [], "mtimes": [1]}]]}',
        b'{"answers": [[{"names": [1], "sizes": [1], "mtimes": [1]}]]}',
    ]:
        with subtests.test(body=body), pytest.raises(BadAnswerError):
            read_answers([LookupQuery("latest_base_files", ("a",))], body)


@pytest.mark.parametrize(("logs", "names"), [([2], [None]), ([0], []), ([1], [None, "x.log"])])
def test_slices_with_other_files_than_announced_are_refused(
    logs: list[int], names: list[str | None]
) -> None:
    rows = [0] * len(names)
    part = {"ids": ["a"], "instants": ["1"], "logs": logs}
    part |= {"names": names, "sizes": rows, "mtimes": rows}
    body = json.dumps({"answers": [[part]]}).encode()
    with pytest.raises(BadAnswerError):
        read_answers([LookupQuery("latest_file_slices", ("a",))], body)


def test_a_negative_number_of_logs_is_a_bad_answer() -> None:
    part = {"ids": ["a", "b"], "instants": ["1", "1"], "logs": [1, -1]}
    part |= {"names": [None, None], "sizes": [0, 0], "mtimes": [0, 0]}
    body = json.dumps({"answers": [[part]]}).encode()
    with pytest.raises(BadAnswerError, match="negative"):
        read_answers([LookupQuery("latest_file_slices", ("p",))], body)


def test_a_query_nested_deeply_is_refused_as_any_other() -> None:
    nested = "[" * 900 + "]" * 900
    for body in (f'{{"queries":[{nested}]}}', f'{{"queries":[{{"query":{nested}}}]}}'):
        with pytest.raises(InputError):
            read_queries(body.encode())


NAME = "a_1-0-1_20240101000000000.parquet"
FILE = {"names": [NAME], "sizes": [1], "mtimes": [0]}
SLICE = {"ids": ["a"], "instants": ["1"], "logs": [0], **FILE}
NO_SLICE = {"ids": [None], "instants": [None], "logs": [0], "names": [None]}


def test_a_column_of_numbers_with_something_else_is_a_bad_answer(subtests: pytest.Subtests) -> None:
    for value, column in product([None, "1", -1, 1.5, [], {}, True], ["sizes", "mtimes", "logs"]):
        with subtests.test(value=value, column=column):
            name = "latest_file_slices" if column == "logs" else "latest_base_files"
            if (column, value) != ("mtimes", -1):  # a time before 1970
                refused(name, SLICE | {column: [value]})


def test_a_name_that_is_no_base_file_s_is_a_bad_answer(subtests: pytest.Subtests) -> None:
    for value in [None, 1, "", "x.parquet", "../a_1_2.parquet", f"/{NAME}"]:
        with subtests.test(value=value):
            refused("latest_base_files", FILE | {"names": [value]})


def test_a_column_that_is_no_list_is_a_bad_answer(subtests: pytest.Subtests) -> None:
    for values, column in product(["x", {NAME: 1}, None, 1], sorted(SLICE)):
        with subtests.test(values=values, column=column):
            refused("latest_file_slices", SLICE | {column: values})


def test_a_slice_with_files_of_another_group_or_nulls_is_a_bad_answer(
    subtests: pytest.Subtests,
) -> None:
    for wrong in [
        {"ids": ["b"]},
        {"ids": [1]},
        {"ids": [None]},
        {"instants": [None]},
        {"instants": [1]},
        {"sizes": []},
        {"logs": [1], "names": [NAME, ".b_1.log.1_0-0-0"], "sizes": [1, 1], "mtimes": [0, 0]},
        {"logs": [1], "names": [NAME, None], "sizes": [1, 1], "mtimes": [0, 0]},
        NO_SLICE,
    ]:
        with subtests.test(wrong=wrong):
            refused("latest_file_slices", SLICE | wrong)


@pytest.mark.parametrize(
    "wrong", [{"ids": ["b"], "names": ["b_1_2.parquet"]}, {"ids": [None]}, NO_SLICE | {"logs": [1]}]
)
def test_a_group_s_answer_is_of_this_group_or_null(wrong: dict) -> None:
    query = LookupQuery("latest_file_slice", ("p",), ("a",))
    assert read_answers([query], answer(SLICE | NO_SLICE)) == ((None,),)
    with pytest.raises(BadAnswerError):
        read_answers([query], answer(SLICE | wrong))


def test_an_answer_that_would_take_far_more_memory_than_its_bytes_is_refused() -> None:
    body = b'{"answers":[' + b"[]," * UNCHECKED_BYTES + b"[]]}"
    with pytest.raises(BadAnswerError, match="allowed: one for each"):
        read_answers([LookupQuery("latest_base_files", ("p",))], body)


def answer(part: dict) -> bytes:
    """Return the body of an answer with one part."""
    return json.dumps({"answers": [[part]]}).encode()


def refused(name: str, part: dict) -> None:
    """Assert that columns are no answer to a query, neither alone nor batched."""
    with pytest.raises(BadAnswerError):
        BY_NAME[name].decode(json.dumps(part).encode(), PathForms.of("/t"), partition="p")
    with pytest.raises(BadAnswerError):
        read_answers([LookupQuery(name, ("p",))], answer(part))
