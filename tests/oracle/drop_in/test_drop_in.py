"""Hudi's jobs on our service in place of Hudi's server: whole lives of tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.oracle.driver_log import fallbacks
from tests.oracle.drop_in.jobs import KINDS, Job, Kind, pointed_at
from tests.oracle.drop_in.recording_relay import asked
from tests.oracle.drop_in.service import Service, another, check_asked
from tests.oracle.hudi import HUDI, HUDI_0, Hudi

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.release == HUDI], ids=str)
def test_a_table_lives_its_whole_life_on_our_service(
    hudi: Hudi, service: Service, log: Path, kind: Kind, report: Callable[[str], None]
) -> None:
    pointed = pointed_at(service.relay.port)
    job = Job(hudi, service.lake / str(kind), kind, pointed)
    job.live()

    seen = service.check_all_answered()
    check_asked(seen, [kind], markers=True)
    report(service.check_followed())
    assert fallbacks(log) == []
    # Readers build views of their own, whatever they are told.
    hudi.read(job.path, **{name.replace(".", "_"): value for name, value in pointed.items()})
    assert asked(service.relay.exchanges) == seen


def test_tables_of_an_older_release_live_their_whole_life_on_our_service(
    service: Service, tmp_path: Path, report: Callable[[str], None]
) -> None:
    log = tmp_path / "driver.log"
    with another("live", HUDI_0, service, log):
        pass  # nothing to do meanwhile

    seen = service.check_all_answered()
    check_asked(seen, [kind for kind in KINDS if kind.release == HUDI_0], markers=False)
    # This release names logs that it rolls back without sizes: their partition is listed again.
    report(service.check_followed(lists=2))
    assert fallbacks(log) == []
