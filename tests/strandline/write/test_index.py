"""What an operation asks of the index: whether to look keys up, and where not to look at all."""

from __future__ import annotations

import pyarrow as pa
import pytest

from executor_proxy.view_location import ViewLocation
from strandline.write.index.base import TagRequest
from strandline.write.index.simple import SimpleIndex
from strandline.write.operation import BULK_INSERT, DELETE, INSERT, UPSERT
from timeline.storage.local import LocalStorage


def tag_task(operation, *, combine, small_files):
    storage = LocalStorage("/nowhere")
    location = ViewLocation("/nowhere", "http://h:1", "t", {}, "", "", storage=storage)
    schema = pa.schema([("k", pa.string())])
    request = TagRequest(operation, schema, storage, lambda: location, combine, ("k",), small_files)
    return SimpleIndex().tag_task(request)


@pytest.mark.parametrize("operation", [UPSERT, DELETE], ids=lambda each: each.name)
@pytest.mark.parametrize("small_files", [False, True])
def test_rows_that_may_be_stored_are_matched(operation, small_files):
    task = tag_task(operation, combine=True, small_files=small_files)
    assert task.match
    assert task.combine
    assert task.location is not None
    assert task.only_stored is (operation is DELETE)


@pytest.mark.parametrize("combine", [False, True])
def test_inserts_look_up_files_to_fill_small_ones(combine):
    task = tag_task(INSERT, combine=combine, small_files=True)
    assert (task.match, task.combine, task.only_stored) == (False, combine, False)
    assert task.location is not None


@pytest.mark.parametrize("operation", [INSERT, BULK_INSERT], ids=lambda each: each.name)
def test_rows_for_new_groups_are_only_combined(operation):
    task = tag_task(operation, combine=True, small_files=False)
    assert (task.match, task.combine, task.location) == (False, True, None)
    assert tag_task(operation, combine=False, small_files=False) is None
