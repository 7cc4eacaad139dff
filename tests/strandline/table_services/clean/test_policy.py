from __future__ import annotations

import pytest

from strandline.settings.setting import Settings, settings_of
from strandline.table_services.clean.policy import (
    KEEP_LATEST_BY_HOURS,
    KEEP_LATEST_COMMITS,
    KEEP_LATEST_FILE_VERSIONS,
    CleanSettings,
    Retention,
    is_due,
    retention,
)
from strandline.write.options.client_options import parse_options
from timeline.errors import ConfigError
from timeline.instant import Instant, State
from timeline.metadata.instant_metadata import CleanMetadata
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
            found = retention(timeline(*said), CleanSettings(retained=retained), "0")
            assert earliest_of(found) == earliest
            assert found is None or found.earliest.is_completed


def earliest_of(found: Retention | None) -> str | None:
    return None if found is None or found.earliest is None else found.earliest.requested_time


def test_by_hours_the_first_write_of_the_last_hours_is_the_earliest(subtests):
    settings = CleanSettings(policy=KEEP_LATEST_BY_HOURS)
    for said, since, earliest in [
        ((), "2", None),
        (COMMITS, "0", "1"),
        (COMMITS, "2", "2"),
        (COMMITS, "25", "3"),
        # Nothing was written in the last hours, so nothing is known that nobody needs.
        (COMMITS, "5", None),
        # Unlike in Hudi, what a pending write reads stays.
        ((*COMMITS, "25 commit inflight"), "3", "2"),
        ((*COMMITS, "0 commit requested"), "3", None),
    ]:
        with subtests.test(said=said, since=since):
            assert earliest_of(retention(timeline(*said), settings, since)) == earliest


def test_file_versions_have_no_earliest_instant():
    settings = CleanSettings(policy=KEEP_LATEST_FILE_VERSIONS, versions=2)
    assert retention(timeline("1 commit inflight"), settings, "0") is None
    assert retention(timeline(*COMMITS), settings, "0") == Retention(settings.policy, None, 2)


def test_a_clean_moves_on_by_so_many_writes_at_most(subtests):
    """Hudi's ``CleanerUtils.capCommitsToClean``."""
    settings = CleanSettings(retained=1, max_to_clean=2)
    for before, earliest in [("1", "3"), ("2", "4"), ("4", "4"), ("", "4")]:
        with subtests.test(before=before):
            known = CleanMetadata(earliest_commit_to_retain=before)
            assert earliest_of(retention(timeline(*COMMITS), settings, "0", known)) == earliest


def test_is_due(subtests):
    for said, since, max_commits, due in [
        (("1 commit",), None, 1, True),
        (("1 commit",), None, 2, False),
        (("1 commit", "2 clean"), "1", 1, False),
        (("1 commit", "2 clean", "3 commit", "4 replacecommit"), "1", 2, True),
        (("1 commit", "2 clean", "3 commit", "4 commit inflight"), "1", 2, False),
        (("1 commit", "2 clean inflight", "3 commit"), None, 2, True),
        # Requested before the clean, completed after it was planned.
        (("1 commit", "2 commit", "3 clean"), "1", 1, True),
    ]:
        with subtests.test(said=said, max_commits=max_commits):
            known = None if since is None else CleanMetadata(last_completed_commit_timestamp=since)
            assert is_due(timeline(*said), max_commits, known) is due


def parsed(options):
    return CleanSettings.of(Settings.parse(options, settings_of(CleanSettings)))


def test_settings_have_hudis_names_and_defaults():
    assert parsed({}) == CleanSettings()
    assert parsed(
        {
            "hoodie.clean.automatic": "false",
            "hoodie.clean.policy": "KEEP_LATEST_BY_HOURS",
            "hoodie.clean.commits.retained": 3,
            "hoodie.clean.hours.retained": 48,
            "hoodie.clean.fileversions.retained": 4,
            "hoodie.clean.max.commits.to.clean": 20,
            "hoodie.write.empty.clean.interval.hours": 6,
            "hoodie.clean.trigger.max.commits": "5",
            "hoodie.clean.parallelism": "2",
            "hoodie.table.name": "of someone else",
        }
    ) == CleanSettings(False, KEEP_LATEST_BY_HOURS, 3, 48, 4, 5, 20, 6, 2)


def test_the_only_retention_that_is_set_decides_the_policy(subtests):
    """Hudi's ``HoodieCleanConfig.CLEANER_POLICY`` infers it."""
    commits, hours, versions = (
        f"hoodie.cleaner.{each}.retained" for each in ("commits", "hours", "fileversions")
    )
    for names, policy in [
        ((), KEEP_LATEST_COMMITS),
        ((commits,), KEEP_LATEST_COMMITS),
        ((hours,), KEEP_LATEST_BY_HOURS),
        ((versions,), KEEP_LATEST_FILE_VERSIONS),
        ((hours, versions), KEEP_LATEST_COMMITS),
        ((commits, hours), KEEP_LATEST_COMMITS),
    ]:
        with subtests.test(names=names):
            found = CleanSettings.of(parse_options(dict.fromkeys(names, "7")))
            assert found.policy == policy
            both = {"hoodie.clean.policy": policy, **dict.fromkeys(names, "7")}
            assert CleanSettings.of(parse_options(both)).policy == policy


def test_old_names_of_hudis_set_the_same():
    options = {"hoodie.cleaner.commits.retained": "4", "hoodie.clean.max.commits": "2"}
    found = CleanSettings.of(parse_options(options))
    assert (found.retained, found.max_commits) == (4, 2)


def test_what_is_not_allowed_is_refused_by_name(subtests):
    for name, value in [
        ("hoodie.clean.commits.retained", "0"),
        ("hoodie.clean.commits.retained", "many"),
        ("hoodie.clean.hours.retained", "-1"),
        ("hoodie.clean.fileversions.retained", "0"),
        ("hoodie.clean.policy", "KEEP_ALL"),
    ]:
        with (
            subtests.test(name=name, value=value),
            pytest.raises(ConfigError, match=rf"{name} is '{value}'; allowed"),
        ):
            parsed({name: value})
