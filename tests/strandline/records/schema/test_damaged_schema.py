"""Damaged schema texts in the newest commit: errors name its file, and nothing changes."""

import json

import pytest

from strandline.table_api.table import Table
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.errors import CorruptMetadataError


def nested(times):
    text = '"int"'
    for at in range(times):
        text = f'{{"type":"record","name":"r{at}","fields":[{{"name":"x","type":{text}}}]}}'
    return text


DAMAGED = [
    "{",
    "[",
    '"int"',
    "null",
    "[" * 100_000,
    nested(2_000),
    '{"type":"record"}',
    '{"type":"array","items":"int"}',
    '{"type":"record","name":null,"fields":[]}',
    '{"type":"record","name":"r","fields":[1]}',
    '{"type":"record","name":"r","fields":[{"name":1,"type":"int"}]}',
    '{"type":"record","name":"r","fields":[{"name":"x"}]}',
    '{"type":"record","name":"r","fields":[{"name":"x","type":null}]}',
    '{"type":"record","name":"r","fields":[{"name":"x","type":"int"},{"name":"x","type":"int"}]}',
    '{"type":"record","name":"r","fields":[{"name":"x","type":{"type":"fixed","name":"f",'
    '"size":9,"logicalType":"decimal","precision":"9"}}]}',
]


@pytest.mark.property
def test_a_damaged_schema_is_an_error_that_names_its_commit(subtests, tmp_path):
    for number, damaged in enumerate(DAMAGED):
        with subtests.test(damaged=damaged):
            base = tmp_path / str(number)
            with client(base, write__table__version=6) as c:
                c.upsert(table(row("a")))
            (path,) = reader.timeline_folder(base).glob("*.commit")
            commit = json.loads(path.read_text())
            commit["extraMetadata"]["schema"] = damaged
            path.write_text(json.dumps(commit))
            before = {file for file in base.rglob("*") if file.is_file()}
            with client(base) as c:
                for write in (c.insert, c.upsert, c.delete):
                    with pytest.raises(CorruptMetadataError, match=str(path)):
                        write(table(row("a")))
            with pytest.raises(CorruptMetadataError, match=str(path)):
                Table(str(base)).to_arrow()
            assert {file for file in base.rglob("*") if file.is_file()} == before
