from __future__ import annotations

import pytest

from strandline.settings.setting import Settings
from strandline.table_services.clean.policy import (
    CLEAN_SETTINGS,
    CleanSettings,
    earliest_to_retain,
    is_due,
)
from strandline.write.options.client_options import parse_options
from timeline.errors import ConfigError
from timeline.instant import Instant, State
from timeline.timeline import Timeline


def timeline(*said: str) -> Timeline:
    """Make a timeline of ``time action [state]``; the state is completed by default."""
    instants = []
    for each in said:
        time, action, *state = each.split()
        instants.append(
            Instant(time, action, State(state[0].upper()) if state else State.COMPLETED)
        )
    return Timeline.of(instants)


COMMITS = ("1 commit", "2 replacecommit", "3 deltacommit", "4 commit")


RETAINED = [
    ((), 1, None),
    (("1 commit",), 1, None),
    (COMMITS, 4, None),
    (COMMITS, 5, None),
    (COMMITS, 3, "2"),
    (COMMITS, 1, "4"),
    # Only writes count.
    ((*COMMITS, "5 clean", "6 rollback", "4 savepoint"), 3, "2"),
    # Nothing from a pending write on may go; it doesn't count among the retained.
    ((*COMMITS, "5 commit inflight"), 1, "4"),
    ((*COMMITS, "35 commit requested"), 1, "3"),
    ((*COMMITS, "25 compaction requested"), 1, "2"),
    ((*COMMITS, "25 clustering inflight"), 2, "2"),
    ((*COMMITS, "0 replacecommit requested"), 1, None),
    ((*COMMITS, "35 clean requested"), 1, "4"),
]


def test_earliest_to_retain(subtests):
    for said, retained, earliest in RETAINED:
        with subtests.test(said=said, retained=retained):
            found = earliest_to_retain(timeline(*said), retained)
            assert (found and found.requested_time) == earliest
            assert found is None or found.is_completed


def test_is_due(subtests):
    for said, max_commits, due in [
        (("1 commit",), 1, True),
        (("1 commit",), 2, False),
        (("1 commit", "2 clean"), 1, False),
        (("1 commit", "2 clean", "3 commit", "4 replacecommit"), 2, True),
        (("1 commit", "2 clean", "3 commit", "4 commit inflight"), 2, False),
        (("1 commit", "2 clean inflight", "3 commit"), 2, True),
    ]:
        with subtests.test(said=said, max_commits=max_commits):
            assert is_due(timeline(*said), max_commits) is due


def parsed(options):
    return CleanSettings.of(Settings.parse(options, CLEAN_SETTINGS))


def test_settings_have_hudis_names_and_defaults():
    assert parsed({}) == CleanSettings(True, 10, 1, 8)
    assert parsed(
        {
            "hoodie.clean.automatic": "false",
            "hoodie.clean.commits.retained": 3,
            "hoodie.clean.trigger.max.commits": "5",
            "hoodie.clean.parallelism": "2",
            "hoodie.table.name": "of someone else",
        }
    ) == CleanSettings(False, 3, 5, 2)


def test_old_names_of_hudis_set_the_same():
    options = {"hoodie.cleaner.commits.retained": "4", "hoodie.clean.max.commits": "2"}
    found = CleanSettings.of(parse_options(options))
    assert (found.retained, found.max_commits) == (4, 2)


def test_what_is_not_allowed_is_refused_by_name(subtests):
    for name, value in [
        ("hoodie.clean.commits.retained", "0"),
        ("hoodie.clean.commits.retained", "many"),
        ("hoodie.clean.policy", "KEEP_LATEST_FILE_VERSIONS"),
        ("hoodie.clean.policy", "KEEP_LATEST_BY_HOURS"),
    ]:
        with (
            subtests.test(name=name, value=value),
            pytest.raises(ConfigError, match=rf"{name} is '{value}'; allowed"),
        ):
            parsed({name: value})
