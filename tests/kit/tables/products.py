"""Golden tables and faults: which cases run on every change, and which in `tox -e all`.

A test over golden tables runs on those in ``COVERING``: each table type, version and action, and
each layout of partitions.

Of a product, pairwise chosen cases run on every change: each scenario in ``COVERING`` at least
once, and each fault with every table type and every table version in which it can happen. They are
chosen greedily from the names alone. `tox -e quick` runs each fault once, on a scenario in
``TELLING``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

import pytest

from tests.kit.tables import golden

ALL = golden.scenarios()
TELLING = ("replace_cow_v6", "rollback_mor_v9", "savepoint_mor_v6")
"""Scenarios that together contain every action."""
COVERING = (
    *("archival_mor_v9", "bucket_mor_v6", "cow_basic_v6_h0150", "hive_cow_v9", "mdt_mor_v9"),
    *("mor_basic_v8", "multi_mor_v6", "nonpart_cow_v6", "special_cow_v9", "walkdev_mor_v6"),
    *TELLING,
)
"""Scenarios with every action, type, version and kind of partition; `tox` runs these alone."""

Case = tuple[str, str]
"""(fault, scenario)"""


class Product:
    """The product of faults and the scenarios in which each has an effect.

    Attributes:
        cases: All cases.
        quick: The cases of `tox -e quick`.
        few: The cases that run on every change, including ``quick``.
    """

    def __init__(self, faults: Mapping[str, Collection[str]], *, least: int) -> None:
        """Build the cases.

        Args:
            faults: Fault → scenarios in which it has an effect.
            least: The least number of cases, so that a product can't become empty unnoticed.
        """
        self.cases = [(fault, name) for fault, names in faults.items() for name in sorted(names)]
        assert len(self.cases) >= least, f"{len(self.cases)} cases, not {least} or more"
        self.quick = frozenset(
            (fault, next(name for name in TELLING[at % 3 :] + TELLING if name in names))
            for at, (fault, names) in enumerate(faults.items())
        )
        self.few = self.quick.union(_pairwise(self.cases, self.quick))

    def params(self, *faults: str) -> list[pytest.ParameterSet]:
        """Return the parameters (fault, scenario) of some faults, each case with its mark."""
        return [
            pytest.param(*case, marks=self._marks(case), id="-".join(case))
            for case in self.cases
            if case[0] in faults
        ]

    def scenarios(self, fault: str) -> list[pytest.ParameterSet]:
        """Return the scenarios of one fault, each with its mark."""
        return [
            pytest.param(case[1], marks=self._marks(case), id=case[1])
            for case in self.cases
            if case[0] == fault
        ]

    def _marks(self, case: Case) -> tuple[pytest.MarkDecorator, ...]:
        if case not in self.few:
            return (pytest.mark.product,)
        return () if case in self.quick else (pytest.mark.property,)


def _pairwise(cases: Collection[Case], chosen: Collection[Case]) -> Iterator[Case]:
    """Yield cases until all pairs are covered, greedily: the first of those that cover most."""
    left = set().union(*map(_covered, cases)).difference(*map(_covered, chosen))
    while left:
        case = max(cases, key=lambda case: len(left & _covered(case)))
        left -= _covered(case)
        yield case


def _covered(case: Case) -> set[tuple[str, str]]:
    """Return what a case covers: its scenario, and its fault with the table's type and version."""
    fault, scenario = case
    told = re.search(r"(?:^|_)(cow|mor)_(?:\w+_)?(v\d+(?:_h\d+)?)$", scenario)
    assert told, f"the name of scenario {scenario} has no table type and version"
    told_of = {("scenario", scenario)} if scenario in COVERING else set()
    return told_of | {(fault, told[1]), (fault, told[2])}
