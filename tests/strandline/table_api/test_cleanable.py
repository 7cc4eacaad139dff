"""``Table.cleanable`` and ``Table.why`` on tables that Hudi wrote, which they leave as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import Table
from strandline.table_services.clean.policy import POLICIES
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import golden
from tests.kit.tables.reader import contents
from tests.strandline.write.tables import client
from tests.strandline.write.tables import row as row_of
from tests.strandline.write.tables import table as table_of
from timeline.errors import ConfigError, InputError
from timeline.instant import CLEAN
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CleanerPlan, CleanMetadata


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_to_look_changes_no_byte(scenario, tmp_path):
    base = Path(golden.build(scenario, golden.steps(scenario)[-1], tmp_path))
    before = contents(base)
    table = Table(base)
    for policy in POLICIES:
        found = table.cleanable(policy, 1)
        assert found.policy == policy
        for row in found.files.to_pylist():
            file = f"{row['partition']}/{row['file']}".lstrip("/")
            fate = table.why(file, policy, 1)
            assert (fate.is_there, fate.goes) == (True, True)
            assert fate.reason == row["reason"]
            assert row["bytes"] == len(before[file][0])
    for row in table.files().to_pylist():
        for file in filter(None, (row["path"], *row["log_paths"])):
            assert not table.why(file).goes
    assert contents(base) == before


def test_a_file_that_hudis_cleaner_deleted_names_the_clean(tmp_path):
    table = Table(golden.build("cow_basic_v9", golden.steps("cow_basic_v9")[-1], tmp_path))
    cleans = [i for i in table.history().to_pylist() if i["action"] == "clean"]
    assert cleans
    entry = table.inspect.instants().to_pylist()
    assert entry
    for clean in cleans:
        said = table._meta.read(
            table._meta.active_timeline().find(clean["requested_time"], "clean")
        )
        for partition, cleaned in said.partition_metadata.items():
            for name in cleaned.success_delete_files:
                fate = table.why(f"{partition}/{name}")
                assert (fate.is_there, fate.goes) == (False, True)
                assert fate.reason.startswith(f"the clean {clean['requested_time']} deleted it")


@pytest.mark.parametrize(
    ("policy", "retain", "match"),
    [
        ("KEEP_ALL", None, "policy is 'KEEP_ALL'; allowed: KEEP_LATEST_COMMITS, "),
        (None, 0, "retain is '0'; allowed: integer, 1 or more"),
        ("KEEP_LATEST_BY_HOURS", -3, "retain is '-3'; allowed: integer, 1 or more"),
    ],
)
def test_policies_and_retentions_that_do_not_exist_are_refused(policy, retain, match, tmp_path):
    table = Table(golden.build("cow_basic_v9", golden.steps("cow_basic_v9")[0], tmp_path))
    with pytest.raises(ConfigError, match=match):
        table.cleanable(policy, retain)


def test_a_file_of_another_table_is_refused(tmp_path):
    table = Table(golden.build("cow_basic_v9", golden.steps("cow_basic_v9")[0], tmp_path))
    with pytest.raises(InputError, match="isn't below"):
        table.why("/elsewhere/a_0-0-0_1.parquet")


@pytest.mark.parametrize("call", ["cleanable", "why", "archivable"])
def test_an_instant_that_goes_before_it_is_read_is_no_error(call, tmp_path):
    """A clean may be withdrawn, or archived, after the timeline was listed."""
    with client(tmp_path / "t") as c:
        for n in range(3):
            c.upsert(table_of(row_of("a", ts=n)))
    storage = HookedStorage(tmp_path / "t")
    found = Table(tmp_path / "t")
    found._meta = meta = TableMetaClient.open(storage)
    file = next((tmp_path / "t").rglob("*.parquet"))
    instant = meta.create_requested(CLEAN, "20991231235959999", CleanerPlan(policy="none"))
    if call == "archivable":
        instant = meta.transition_to_inflight(instant)
        instant = meta.complete(instant, CleanMetadata("20991231235959999"), "21000101000000000")

    def withdraw(kind: str, path: str) -> None:
        if kind == "list" and path.endswith("timeline"):
            (tmp_path / "t" / meta.path_of(instant)).unlink(missing_ok=True)

    storage.hooks[1] = withdraw
    if call == "cleanable":
        assert found.cleanable(retain=1).files.num_rows == 1
    elif call == "why":
        assert found.why(str(file)).is_there
    else:
        assert found.archivable() == ()
