"""The JSON of answers: Java's fields in Java's order, and parsed back to the same values."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsview.model.file_group import (
    BaseFile,
    ClusteringOperation,
    CompactionOperation,
    FileGroup,
    FileSlice,
    LogFile,
)
from fsview.model.file_system_view import FileSystemView
from fsview.wire import json_form as wire
from fsview.wire import routes
from fsview.wire.json_form import PathForms
from fsview.wire.routes import BY_NAME, ROUTES
from tests.fsview.subject import BY_PATH
from timeline.errors import BadAnswerError, InputError
from timeline.instant import COMMIT, COMPACTION, Instant, State
from timeline.timeline import Timeline

TIME = "20261121080720429"
BASE = BaseFile("p=0", f"f-0_0-1-2_{TIME}.parquet", 7, 9, "f-0", TIME)
LOG = LogFile("p=0", f".f-0_{TIME}.log.1_0-1-2", 5, 0, "f-0", TIME, 1, "0-1-2")
SLICE = FileSlice("p=0", "f-0", TIME, BASE, (LOG,))
TIMELINE = Timeline.of([Instant(TIME, COMMIT, State.COMPLETED, "20261121080733074")])
PATHS = PathForms.of("/lake/t")


def test_local_paths_have_hadoops_two_forms(subtests: pytest.Subtests) -> None:
    for spelling in ["/lake/t", "/lake/t/", "file:/lake/t", "file:///lake/t"]:
        with subtests.test(spelling=spelling):
            paths = PathForms.of(spelling)
            assert (paths.text, paths.uri) == ("file:/lake/t", "file:///lake/t")


@pytest.mark.parametrize("spelling", ["s3a://bucket/t", "s3://bucket/t/", "hdfs://name:8020/t"])
def test_other_paths_begin_as_their_caller_spells_them(spelling: str) -> None:
    paths = PathForms.of(spelling)
    assert paths.text == paths.uri == spelling.rstrip("/")
    dto = wire.base_file_dto(BASE, paths)
    assert dto["fullPath"] == f"{spelling.rstrip('/')}/p=0/{BASE.name}"
    assert wire.read_base_file(dto, paths) == BASE


def test_only_uris_are_encoded_and_only_what_java_encodes(subtests: pytest.Subtests) -> None:
    for partition, encoded in [
        ("a b", "a%20b"),
        ("50%25off", "50%2525off"),
        ("a+b&c", "a+b&c"),
        ("o%27neil%3A1", "o%2527neil%253A1"),
        ("ünïcöde", "ünïcöde"),
        ("[x]#?^`{|}", "%5Bx%5D%23%3F%5E%60%7B%7C%7D"),
        ("no\u00a0break", "no%C2%A0break"),
    ]:
        with subtests.test(partition=partition, encoded=encoded):
            dto = wire.base_file_dto(BaseFile(partition, BASE.name, 7, 9, "f-0", TIME), PATHS)
            assert dto["fileStatus"]["path"]["uri"] == f"file:///lake/t/{encoded}/{BASE.name}"
            assert dto["fullPath"] == f"file:/lake/t/{partition}/{BASE.name}"


def test_fields_come_in_javas_order_with_their_nulls() -> None:
    text = json.dumps(wire.file_groups_dto([FileGroup("p=0", "f-0", (SLICE,), TIMELINE)], PATHS))
    fields = [
        *("partition", "fileId", "slices", "baseFile", "fileStatus", "path", "uri", "length"),
        *("isdir", "blockReplication", "blocksize", "modificationTime", "fullPath", "fileLen"),
        *("commitTime", "bootstrapBaseFile", "logFiles", "len", "baseInstant", "timeline"),
        *("instants", "action", "ts", "state", "requestedTime", "completionTime"),
    ]
    places = [text.index(f'"{name}"') for name in fields]
    assert places == sorted(places)
    assert '"bootstrapBaseFile": null' in text


def test_only_the_first_group_has_the_timeline_and_it_counts_for_all() -> None:
    groups = tuple(FileGroup("p=0", f"f-{n}", (SLICE,), TIMELINE) for n in range(3))
    dtos = wire.file_groups_dto(groups, PATHS)
    assert [dto["timeline"] is None for dto in dtos] == [False, True, True]
    assert wire.read_file_groups(dtos, PATHS) == groups
    with pytest.raises(BadAnswerError, match="no timeline"):
        wire.read_file_groups(dtos[1:], PATHS)


ANSWERS = {
    "latest_base_files": (BASE,),
    "latest_base_file": BASE,
    "base_file_on": None,
    "all_latest_base_files_before_or_on": {"p=0": (BASE,), "p=1": ()},
    "latest_file_slices": (SLICE, FileSlice("p=0", "f-1", TIME)),
    "latest_file_slice": SLICE,
    "all_file_groups": (FileGroup("p=0", "f-0", (SLICE,), TIMELINE),),
    "pending_compaction_operations": (
        CompactionOperation("p=0", "f-0", TIME, TIME, TIME, (LOG.name,), BASE.name, {"x": 1.5}),
        CompactionOperation("", "f-1", TIME, TIME),
    ),
    "file_groups_in_pending_clustering": (
        ClusteringOperation("p=0", "f-0", Instant(TIME, "clustering", State.REQUESTED)),
    ),
    "last_instant": Instant(TIME, COMPACTION, State.INFLIGHT),
    "timeline": TIMELINE,
    "sync": None,
}


def test_an_answer_is_read_back_as_it_was(subtests: pytest.Subtests) -> None:
    for name in ANSWERS:
        with subtests.test(name=name):
            body = BY_NAME[name].encode(ANSWERS[name], PATHS)
            assert BY_NAME[name].decode(body, PATHS) == ANSWERS[name]


def test_what_a_route_does_not_answer_is_a_bad_answer(subtests: pytest.Subtests) -> None:
    for body in [b"", b"null", b"[1]", b'[{"fileLen":1}]', b"<html>"]:
        with (
            subtests.test(body=body),
            pytest.raises(BadAnswerError, match="datafiles/latest/partition answered"),
        ):
            BY_NAME["latest_base_files"].decode(body, PATHS)


def test_a_path_outside_the_table_is_a_bad_answer() -> None:
    body = BY_NAME["latest_base_files"].encode([BASE], PathForms.of("/lake/t2"))
    with pytest.raises(BadAnswerError, match="not below"):
        BY_NAME["latest_base_files"].decode(body, PATHS)


def changed(answer: str, **fields: Any) -> bytes:
    """Return the body of an answer whose only slice has other fields."""
    body = json.loads(BY_NAME[answer].encode(SLICES_OF[answer], PATHS))
    slices = body["p=0"] if isinstance(body, dict) else body
    (slices[0]["slices"][0] if "slices" in slices[0] else slices[0]).update(fields)
    return json.dumps(body).encode()


SLICES_OF: dict[str, Any] = {
    "all_latest_file_slices_before_or_on": {"p=0": (SLICE,)},
    "latest_file_slices": (SLICE,),
    "latest_file_slices_in_range": (SLICE,),
    "latest_file_slice": SLICE,
    "all_file_groups": (FileGroup("p=0", "f-0", (SLICE,), TIMELINE),),
}


OF_ANOTHER = [
    {"logFiles": {}},
    {"logFiles": ""},
    {"logFiles": None},
    {"partition": "../../../etc/passwd"},
    {"partition": "../../../etc/passwd", "baseFile": None, "logFiles": []},
    {"partition": "/p=0", "baseFile": None, "logFiles": []},
    {"partition": "p=1"},
    {"partition": None, "baseFile": None, "logFiles": []},
    {"fileId": "f-1"},
]


def test_a_slice_with_files_of_another_is_a_bad_answer(subtests: pytest.Subtests) -> None:
    for name, fields in product(SLICES_OF, OF_ANOTHER):
        with subtests.test(name=name, fields=fields):
            assert BY_NAME[name].decode(changed(name), PATHS) == SLICES_OF[name]
            with pytest.raises(BadAnswerError):
                BY_NAME[name].decode(changed(name, **fields), PATHS)


def test_an_empty_slice_of_another_partition_is_a_bad_answer() -> None:
    others = {"partition": "p=1", "baseFile": None, "logFiles": []}
    by_partition, one = "all_latest_file_slices_before_or_on", "latest_file_slices"
    with pytest.raises(BadAnswerError, match="'p=1' in an answer about partition 'p=0'"):
        BY_NAME[by_partition].decode(changed(by_partition, **others), PATHS)
    with pytest.raises(BadAnswerError, match="'p=1' in an answer about partition 'p=0'"):
        BY_NAME[one].decode(changed(one, **others), PATHS, partition="p=0")
    assert BY_NAME[one].decode(changed(one), PATHS, partition="p=0/") == (SLICE,)


def test_a_partition_outside_the_table_is_a_bad_answer(subtests: pytest.Subtests) -> None:
    for partition in ["..", "/etc", "p=0/", "p=0/../p=1"]:
        with subtests.test(partition=partition), pytest.raises(BadAnswerError):
            BY_NAME["all_latest_base_files_before_or_on"].decode(
                json.dumps({partition: []}).encode(), PATHS
            )


def test_every_method_of_a_view_has_one_route_and_every_path_one() -> None:
    methods = {name for name in vars(FileSystemView) if not name.startswith("_")}
    assert {route.name for route in ROUTES} == methods - {"ask", "look_up", "close"}
    assert len(BY_NAME) == len(BY_PATH) == len(ROUTES) == 34


words = st.text(max_size=20)


@given(words, st.lists(words.filter(lambda word: "," not in word and word), max_size=5), words)
def test_arguments_survive_the_query_string(one: str, many: list[str], other: str) -> None:
    route = BY_NAME["latest_base_files_in_range"]
    assert route.arguments(route.query(instants=many)) == {"instants": tuple(many)}
    route = BY_NAME["load_partitions"]
    assert route.arguments(route.query(partitions=[one, other])) == {"partitions": (one, other)}
    route = BY_NAME["latest_file_slices_before_or_on"]
    asked = {"partition": one, "max_instant": other, "include_pending_compaction": True}
    assert route.arguments(route.query(**asked)) == asked


def test_missing_parameters_are_named_and_empty_ones_are_there() -> None:
    route = BY_NAME["latest_file_slice"]
    with pytest.raises(InputError, match="slices/file/latest/ needs the parameter 'fileid'"):
        route.arguments({"partition": "p"})
    assert route.arguments({"fileid": ""}) == {"partition": "", "file_id": ""}
    assert BY_NAME["replaced_file_groups_before"].arguments({})["max_instant"] == ""


def test_partitions_are_a_list_of_strings(subtests: pytest.Subtests) -> None:
    for text in ["", "{}", "[1]", "[", '"p"']:
        with (
            subtests.test(text=text),
            pytest.raises(InputError, match="not a JSON list of strings"),
        ):
            BY_NAME["load_partitions"].arguments({"partitions": text})


def test_the_partition_of_a_request_is_found() -> None:
    assert BY_NAME["latest_base_file"].of_partition
    assert not BY_NAME["pending_compaction_operations"].of_partition
    assert routes.PREFIX in BY_NAME["timeline"].path
