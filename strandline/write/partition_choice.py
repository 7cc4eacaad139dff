"""``PartitionChoice``: the partitions that a caller of ``delete_partition`` means.

A condition must be decided by the paths of partitions: it is true for all rows of a partition, or
for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.read.filter.partition_filter import Guarantees, satisfiable
from strandline.read.filter.path_values import PathRules
from strandline.read.filter.row_filter import RowFilter
from strandline.records.key.generator import names_directories
from strandline.settings.setting import shortened
from timeline.errors import InputError
from timeline.storage.base import Storage
from timeline.table.config import TableConfig
from timeline.table.partition_metadata import FILE_NAME, path_in

_FORMS = (
    "allowed: a list of partition paths, such as ['region=eu'], or a condition on partition"
    " columns, such as pyarrow.compute.field('region') == 'eu' or [('region', '=', 'eu')]"
)
_SHOWN = 400
"""Maximum length of a value in a message."""


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """Partitions by their paths, or by a condition.

    Attributes:
        paths: Paths under the base path, distinct; empty if there is a condition.
        condition: What ``RowFilter.of`` takes; ``None`` if there are paths.
    """

    paths: tuple[str, ...] = ()
    condition: Any = None

    @classmethod
    def of(cls, given: object) -> PartitionChoice:
        """Return the choice for a caller's argument.

        Raises:
            InputError: It is neither a list of texts nor a condition, or is empty.
        """
        if isinstance(given, pc.Expression):
            return cls(condition=given)
        if isinstance(given, str | bytes) or not isinstance(given, Sequence) or not given:
            raise _refused(given)
        if any(isinstance(each, str) for each in given):
            if not all(isinstance(each, str) for each in given):
                raise _refused(given)
            return cls(tuple(dict.fromkeys(given)))
        return cls(condition=given)

    def check(self, storage: Storage, config: TableConfig, schema: pa.Schema | None) -> None:
        """Check that the table has the partitions, or that its paths decide the condition.

        Args:
            storage: The table's storage.
            config: Its properties.
            schema: Its own columns; ``None`` if no commit has them.

        Raises:
            InputError: It has no such partition, or the condition doesn't fit it.

        Cost: a stat for each path.
        """
        if self.condition is not None:
            self._filter(config, schema)
        for path in self.paths:
            may_be = not path or names_directories(path)
            if not may_be or storage.stat(path_in(path, FILE_NAME)) is None:
                raise InputError(
                    f"{storage.base_path} has no partition {shortened(repr(path), _SHOWN)}",
                    hint="a path is as on storage: region=eu in a table with hive-style paths",
                )

    def chosen(
        self, partitions: Sequence[str], config: TableConfig, schema: pa.Schema | None
    ) -> tuple[str, ...]:
        """Return the chosen partitions, in order; only a condition needs the table's partitions.

        Raises:
            InputError: The path of a partition doesn't decide the condition.
        """
        if self.condition is None:
            return tuple(sorted(self.paths))
        row_filter = self._filter(config, schema)
        assert schema is not None
        guarantees = Guarantees.of(schema, config)
        known = [guarantees.of_partition(path) for path in partitions]
        condition = row_filter.condition
        true = set(satisfiable(condition, known, schema))
        # Null counts as false, as for a filter of rows.
        false = set(satisfiable(~pc.coalesce(condition, pc.scalar(False)), known, schema))
        if both := sorted(true & false):
            path = partitions[both[0]]
            raise InputError(
                f"the path {shortened(repr(path), _SHOWN)} doesn't decide {condition}, which may be"
                " true for some rows of that partition only",
                hint="nothing was deleted; name the partitions by their paths",
            )
        return tuple(sorted(partitions[at] for at in true))

    def _filter(self, config: TableConfig, schema: pa.Schema | None) -> RowFilter:
        if schema is None:
            raise InputError(f"table {config.name!r} has no rows; a condition needs its columns")
        row_filter = RowFilter.of(self.condition, schema)
        told = PathRules.of(schema, config).told
        others = [name for name in row_filter.columns if name not in told]
        if others or not row_filter.columns:
            raise InputError(
                f"the condition {row_filter.condition} is on the columns"
                f" {', '.join(row_filter.columns) or 'none'}; allowed: partition columns whose"
                f" values are in paths, {', '.join(told) or 'of which the table has none'}",
                hint="name the partitions by their paths, or delete rows by their keys",
            )
        return row_filter


def _refused(given: object) -> InputError:
    return InputError(f"partitions is {shortened(repr(given), _SHOWN)}; {_FORMS}")
