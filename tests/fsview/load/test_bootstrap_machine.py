"""Tables changed at random by all of Hudi's actions: their metadata agrees with a listing."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis.stateful import invariant

from tests.fsview.load.wide_table import listed, read, sizes
from tests.fsview.sync import test_machine
from tests.kit.short_runs import examples


class BootstrapMachine(test_machine.TableMachine):
    """After every action a table's metadata agrees with a listing, or isn't trusted."""

    @invariant()
    def what_can_be_read_is_what_lies_there(self) -> None:
        if not hasattr(self, "table"):
            return
        loaded = read(self.table.storage)
        event("listed" if loaded is None else "read")
        if loaded is not None:
            there = listed(self.table.storage)
            for path in self.table.doubles.values():  # a listing doesn't say that it isn't the one
                partition, _, name = path.rpartition("/")
                del there[partition][name]
            assert {p: sizes(version) for p, version in loaded.versions.items()} == there
            assert loaded.known == there.keys()

    def teardown(self) -> None:
        """Nothing more holds at the end."""

    # What is asked of views isn't asked here: no rules, no invariants.
    pinned_clients_see_what_they_saw = None
    held_views_say_what_they_said = None
    a_server_that_was_started_later_answers_as_well = None
    nobody_goes_on_from_what_was_undone = None
    followed_is_rebuilt_is_the_model = None
    pin = hold = look = None


@pytest.mark.property
class TestBootstrap(BootstrapMachine.TestCase):
    settings = settings(
        max_examples=examples(100),
        stateful_step_count=25,
        deadline=None,
        derandomize=True,  # the same everywhere: what is found at random is kept as a case
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
