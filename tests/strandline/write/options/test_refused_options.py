"""Options that a client or a write refuses: by name, and before anything is written."""

from __future__ import annotations

import logging

import pytest

from strandline.settings.setting import REFUSAL_CHARACTERS
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.strandline.write.refusals import refused
from tests.strandline.write.tables import OPTIONS, client, row, table
from timeline.errors import ConfigError

DISAGREEING = {
    "table__name": "other",
    "database__name": "other",
    "datasource__write__recordkey__field": "name",
    "datasource__write__partitionpath__field": "name",
    "table__ordering__fields": "name",
    "write__table__version": 8,
    "datasource__write__hive_style_partitioning": True,
    "datasource__write__partitionpath__urlencode": True,
    "record__merge__mode": "COMMIT_TIME_ORDERING",
    "datasource__write__keygenerator__type": "COMPLEX",
    "table__timeline__timezone": "LOCAL",
}


def test_options_that_contradict_the_table(subtests, base):
    for name in DISAGREEING:
        with subtests.test(name=name):
            match = f"{name.replace('__', '.')} is .*, but the table has"
            refused(base, ConfigError, match, **{name: DISAGREEING[name]})


ALIASES = {
    "datasource__write__precombine__field": ("table__ordering__fields", "name"),
    "table__recordkey__fields": ("datasource__write__recordkey__field", "name"),
    "table__version": ("write__table__version", 8),
    "datasource__write__payload__class": (
        "record__merge__mode",
        "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
    ),
    "datasource__write__keygenerator__class": (
        "datasource__write__keygenerator__type",
        "org.apache.hudi.keygen.ComplexKeyGenerator",
    ),
}


def test_an_option_that_contradicts_the_table_is_named_as_it_was_given(subtests, base):
    for alias in ALIASES:
        with subtests.test(alias=alias):
            name, value = ALIASES[alias]
            match = (
                f"hoodie.{alias.replace('__', '.')} is .*, but the table has .*leave the option out"
            )
            refused(base, ConfigError, match, **{name: None, alias: value})


REFUSED = {
    "table__type": "SOMETHING_ELSE",
    "metadata__enable": "true",
    "datasource__write__table__type": "SOMETHING_ELSE",
    "logfile__data__block__format": "hfile",
    "clean__failed__writes__policy": "NEVER",
    "cleaner__policy__failed__writes": "NEVER",
    "write__concurrency__mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "write__lock__provider": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
    "index__type": "RECORD_INDEX",
    "index__bucket__engine": "CONSISTENT_HASHING",
    "cleaner__policy": "KEEP_ALL",
    "write__table__version": "7",
    "parquet__max__file__size": "many",
    "index__bloom__num_entries": "10000001",
    "parquet__compression__codec": "rar",
    "combine__before__upsert": "false",
    "populate__meta__fields": "false",
    "datasource__write__keygenerator__type": "GLOBAL_DELETE",
}


def test_what_is_asked_for_and_not_there_is_refused_by_name(subtests, tmp_path):
    for name in REFUSED:
        with subtests.test(name=name):
            value = REFUSED[name]
            with pytest.raises(ConfigError) as caught:
                client(tmp_path, **{name: value})
            assert f"hoodie.{name.replace('__', '.')} is " in str(caught.value)
            assert value in str(caught.value)
            assert "allowed" in str(caught.value)


@pytest.mark.parametrize(
    "missing", ["hoodie.table.name", "hoodie.datasource.write.recordkey.field"]
)
def test_what_a_new_table_needs(tmp_path, missing):
    options = {name: value for name, value in OPTIONS.items() if name != missing}
    c = WriteClient(LocalEngine(), str(tmp_path / "t"), options)
    with c, pytest.raises(ConfigError, match=missing):
        c.upsert(table(row("a")))
    assert not (tmp_path / "t").exists()


def test_two_names_of_one_setting_that_disagree(tmp_path):
    with pytest.raises(ConfigError, match=r"precombine\.field is 'name'; both set hoodie"):
        client(tmp_path, datasource__write__precombine__field="name")
    client(tmp_path, datasource__write__precombine__field="ts").close()


def test_two_names_of_one_setting_are_refused_in_a_line_whatever_they_say(tmp_path):
    with pytest.raises(ConfigError) as caught:
        client(tmp_path, datasource__write__precombine__field="n" * 5_000)
    assert len(str(caught.value)) <= REFUSAL_CHARACTERS


def test_merge_modes_that_disagree(tmp_path):
    options = {
        "record__merge__mode": "EVENT_TIME_ORDERING",
        "datasource__write__payload__class": (
            "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
        ),
    }
    with pytest.raises(ConfigError, match="COMMIT_TIME_ORDERING"):
        client(tmp_path, **options)


def test_all_options_that_contradict_the_table_are_one_error(base):
    """With one hint for all of them (#32)."""
    match = r"2 refusals:\n- hoodie.table.ordering.fields is .*\n- hoodie.table.name is .* \(leave"
    refused(base, ConfigError, match, table__name="other", table__ordering__fields="name")


def test_all_that_a_new_table_lacks_is_one_error(tmp_path):
    """Its name as well as its key (#32)."""
    lacking = {"table__name": None, "datasource__write__recordkey__field": None}
    with client(tmp_path / "t", **lacking) as c, pytest.raises(ConfigError) as caught:
        c.upsert(table(row("a")))
    assert "hoodie.table.name is missing" in str(caught.value)
    assert "recordkey.field is missing" in str(caught.value)


def test_a_lock_that_cannot_be_opened_is_refused_with_the_rest(tmp_path):
    """Options of several parts fail together (#32)."""
    options = {"write__lock__provider": "org.example.Lock", "index__type": "RECORD_INDEX"}
    with pytest.raises(ConfigError) as caught:
        client(tmp_path, **options)
    assert "hoodie.index.type is 'RECORD_INDEX'" in str(caught.value)
    assert "hoodie.write.lock.provider is org.example.Lock" in str(caught.value)


def test_buckets_without_a_bucket_index_are_refused(tmp_path):
    """The table would have none, for good (#32)."""
    with (
        client(tmp_path / "t", bucket__index__num__buckets=4) as c,
        pytest.raises(ConfigError, match=r"num.buckets is 4 and hoodie.index.type is SIMPLE"),
    ):
        c.upsert(table(row("a")))
    assert not (tmp_path / "t").exists()


def test_an_operation_is_taken_if_its_method_is_called(tmp_path):
    """Jobs bring the option along; another method is refused before anything is written (#32)."""
    base = tmp_path / "t"
    with client(base, datasource__write__operation="Insert") as c:
        with pytest.raises(ConfigError, match="operation is insert, but upsert is called; allowed"):
            c.upsert(table(row("a")))
        assert not base.exists()
        assert c.insert(table(row("a"))).rows_inserted == 1


def test_options_without_effect_are_in_the_first_result(tmp_path):
    """Nothing archives (#32)."""
    options = {"archive__async": "true", "copyonwrite__insert__auto__split": "false"}
    with client(tmp_path, **options) as c:
        first, second = c.upsert(table(row("a"))), c.upsert(table(row("b")))
    assert [warning.partition(":")[0] for warning in first.warnings] == [
        "ignored hoodie.archive.async",
        "ignored hoodie.copyonwrite.insert.auto.split",
    ]
    assert second.warnings == ()


def test_unknown_options_are_named_in_one_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        client(tmp_path, no__such="1", nor__this="2").close()
    (record,) = caplog.records
    assert "hoodie.no.such, hoodie.nor.this" in record.getMessage()
