"""Partition pruning: the partitions whose paths allow rows that match a filter.

``strandline.read.filter.path_values`` derives values of partition columns from a path. The meta
column ``_hoodie_partition_path`` is that path, or that path after a slash.

A directory above partitions determines less: a text that isn't encoded may have slashes, so its
segment may be only the beginning of the text. Conversely, a filter that fixes the values of all
partition columns fixes the paths.

pyarrow shows only the text of an expression. Everything in it that looks like a value is a
candidate. The candidates are all possible values if pyarrow finds the filter false for every other
value: those below, between and above them, and null. So a misread text only prevents pruning.

Source of the last: Hudi 1.2.0 ``SparkHoodieTableFileIndex.composeRelativePartitionPath``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from strandline.read.filter.path_values import (
    WITHOUT_VALUE,
    PathRules,
    typed_value,
)
from strandline.read.filter.row_filter import RowFilter, expression_text
from strandline.records.key.generator import COMPLEX, KeyGenerator, names_directories
from strandline.records.key.text import key_text
from strandline.records.meta_fields import PARTITION_PATH
from timeline.errors import InputError
from timeline.table.config import TableConfig

MOST_FIXED: Final = 1024
"""Most paths that are derived from values; if there are more, directories are searched."""

MOST_CANDIDATES: Final = 256
"""Most candidate values that are tried."""
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r'\\(["\\])')
_WORD: Final = re.compile(r"[\w+-]+")


@dataclass(frozen=True, slots=True)
class WantedPartitions:
    """The partitions that may have rows for which a filter is true.

    Attributes:
        row_filter: The filter.
        schema: All columns of the table.
        config: The table's properties.
        fixed: The result of ``fixed_partitions``.
    """

    row_filter: RowFilter
    schema: pa.Schema
    config: TableConfig
    fixed: tuple[str, ...] | None

    @classmethod
    def of(cls, row_filter: RowFilter, schema: pa.Schema, config: TableConfig) -> WantedPartitions:
        """Return the partitions that a filter doesn't exclude."""
        return cls(row_filter, schema, config, fixed_partitions(row_filter, schema, config))

    def matching(self, partitions: Sequence[str]) -> Collection[str]:
        """Return the partitions that may have matching rows (``matching_partitions``)."""
        return matching_partitions(partitions, self.row_filter, self.schema, self.config)

    def leading(self, paths: Sequence[str]) -> Collection[str]:
        """Return the directories that may lead to matching rows (``leading_directories``)."""
        return leading_directories(paths, self.row_filter, self.schema, self.config)


def matching_partitions(
    partitions: Sequence[str], row_filter: RowFilter, schema: pa.Schema, config: TableConfig
) -> Collection[str]:
    """Return the partitions that may have rows for which a filter is true.

    Args:
        partitions: Paths under the base path.
        row_filter: The filter.
        schema: All columns of the table.
        config: The table's properties.

    Cost: about 30 us a partition; twice that if the filter is on the meta column and its values may
        begin with a slash.
    """
    guarantees = Guarantees.of(schema, config)
    if not {*guarantees.paths.told, PARTITION_PATH}.intersection(row_filter.columns):
        return partitions
    return _satisfying(partitions, row_filter, guarantees, guarantees.at)


def leading_directories(
    paths: Sequence[str], row_filter: RowFilter, schema: pa.Schema, config: TableConfig
) -> Collection[str]:
    """Return the directories that may be partitions with matching rows, or lead to some.

    Arguments and cost are as in ``matching_partitions``.
    """
    guarantees = Guarantees.of(schema, config)
    first = [*guarantees.paths.told][:1]
    if not {*first, PARTITION_PATH}.intersection(row_filter.columns):
        return paths
    return _satisfying(paths, row_filter, guarantees, guarantees.below)


def _satisfying(
    paths: Sequence[str],
    row_filter: RowFilter,
    guarantees: Guarantees,
    guaranteed: Callable[[str, str], pc.Expression],
) -> Collection[str]:
    """Return the paths for which a filter may be true, for any text of the meta column.

    Args:
        paths: Partitions or directories.
        row_filter: The filter.
        guarantees: What holds at paths.
        guaranteed: Returns the condition that all rows at a path fulfil; its second argument is the
            meta column's text before the path.
    """
    of_meta = PARTITION_PATH in row_filter.columns and guarantees.may_begin_with_slash
    found: set[str] = set()
    for before in ("", "/") if of_meta else ("",):
        known = [guaranteed(path, before) for path in paths]
        matching = satisfiable(row_filter.condition, known, guarantees.schema)
        found.update(paths[at] for at in matching)
    return found


def fixed_partitions(
    row_filter: RowFilter, schema: pa.Schema, config: TableConfig
) -> tuple[str, ...] | None:
    """Return the paths that matching rows can have; ``None`` if the filter doesn't fix them.

    The paths are distinct; their partitions need not exist.

    Args:
        row_filter: The filter.
        schema: All columns of the table.
        config: The table's properties.
    """
    fields = config.partition_fields
    if not fields:
        return None
    paths = _paths_in(row_filter, schema) if config.populate_meta_fields else None
    if paths is None and [*fields] == [*PathRules.of(schema, config).told]:
        paths = _paths_of_values(row_filter, schema, config)
    if paths is None or not all(map(names_directories, paths)):
        return None
    # Different values with slashes may make the same path, as may both forms of one.
    return tuple(dict.fromkeys(paths))


def _paths_in(row_filter: RowFilter, schema: pa.Schema) -> list[str] | None:
    """Return the paths to which a filter fixes the meta column."""
    if PARTITION_PATH not in row_filter.columns:
        return None
    found = fixed_values(PARTITION_PATH, row_filter.condition, schema)
    return None if found is None else [value.as_py().removeprefix("/") for value in found]


def _paths_of_values(
    row_filter: RowFilter, schema: pa.Schema, config: TableConfig
) -> list[str] | None:
    """Return the paths for the values to which a filter fixes all partition columns."""
    fields, choices = config.partition_fields, []
    if not {*fields} <= {*row_filter.columns}:
        return None
    for name in fields:
        found = fixed_values(name, row_filter.condition, schema)
        if found is None or any(value.as_py() in WITHOUT_VALUE for value in found):
            return None
        choices.append([text for value in found for text in _texts(value)])
    forms = (False, True) if _may_have_slashes(schema, config) else (False,)
    if prod(map(len, choices)) * len(forms) > MOST_FIXED:
        return None
    rows = list(product(*choices))
    if not rows:
        return []
    columns = [pa.array(texts, pa.string()) for texts in zip(*rows, strict=True)]
    values = pa.table(columns, names=list(fields))
    paths: list[str] = []
    for has_slashes in forms:
        generator = KeyGenerator(
            (fields[0],),
            fields,
            COMPLEX,
            hive_style=config.hive_style_partitioning,
            url_encode=config.url_encode_partitioning,
            slash_dates=has_slashes,
        )
        try:
            paths += generator.partition_paths(values).to_pylist()
        except InputError:  # a value that no directory can have
            if not has_slashes:
                return None
            paths += _possible_paths(generator, values)
    return paths


def _possible_paths(generator: KeyGenerator, values: pa.Table) -> Iterator[str]:
    """Yield the paths of those rows that have one: with slashes, ``x-`` or ``-5`` has none."""
    for at in range(values.num_rows):
        with suppress(InputError):
            yield from generator.partition_paths(values.slice(at, 1)).to_pylist()


def _may_have_slashes(schema: pa.Schema, config: TableConfig) -> bool:
    """Return whether rows whose value has ``-`` may have a path with ``/``.

    Where the properties don't say so, such a path determines neither a date nor a text that would
    be encoded: its rows have the stored value.
    """
    if len(config.partition_fields) != 1:
        return False
    is_date = pa.types.is_date32(schema.field(config.partition_fields[0]).type)
    return is_date or config.url_encode_partitioning or config.may_slash_dates


def _texts(value: pa.Scalar) -> Iterator[str]:
    """Yield the texts that a value may have in paths, before they are encoded."""
    yield key_text(pa.array([value]), "", "partition column")[0].as_py()
    if pa.types.is_date32(value.type):  # the stored number, if the writer didn't convert it
        yield str(value.cast(pa.int32()).as_py())


@dataclass(frozen=True, slots=True)
class Guarantees:
    """Expressions that are true for all rows at a path of a table.

    Attributes:
        schema: Columns of the table that expressions may use.
        paths: How paths determine their values.
        has_meta: Whether the table stores meta columns.
        may_begin_with_slash: Whether the meta column may have a slash before the path of the
            partition: if a value begins with one, Hudi keeps it there, but not in the directory's
            name.
    """

    schema: pa.Schema
    paths: PathRules
    has_meta: bool
    may_begin_with_slash: bool

    @classmethod
    def of(cls, schema: pa.Schema, config: TableConfig) -> Guarantees:
        """Return the guarantees of a table.

        Args:
            schema: Columns of the table that expressions may use.
            config: The table's properties.
        """
        paths = PathRules.of(schema, config)
        first = None if not paths.fields else paths.told.get(paths.fields[0], pa.string())
        keeps = first is not None and not (paths.hive_style or paths.url_encodes)
        return cls(schema, paths, config.populate_meta_fields, keeps and pa.types.is_string(first))

    def of_partition(self, path: str) -> pc.Expression:
        """Return a conjunction of comparisons of columns with values, true for a partition's rows.

        Args:
            path: The partition's path under the base path.
        """
        if self.may_begin_with_slash:
            return self.paths.values(path).guarantee
        return self.at(path, "")

    def at(self, path: str, before: str) -> pc.Expression:
        """Return the guarantee for a partition's rows whose meta column is ``before`` and path."""
        found = self.paths.values(path).guarantee
        if self.has_meta and PARTITION_PATH in self.schema.names:
            found &= pc.field(PARTITION_PATH) == before + path
        return found

    def below(self, path: str, before: str) -> pc.Expression:
        """Return an expression that is true for all rows in a directory and below it.

        Args:
            path: The directory.
            before: The text of the meta column before the path.
        """
        found = pc.scalar(True)
        if not path:
            return found
        if self.has_meta:
            found = found & _begins(PARTITION_PATH, before + path)
        paths = self.paths
        for name, segment in zip(paths.fields, path.split("/"), strict=False):
            if name not in paths.told:
                break
            kind, text = paths.told[name], paths.text(name, segment)
            if text is None or text in WITHOUT_VALUE:
                if pa.types.is_string(kind):
                    break
                continue
            if paths.is_open(name, text):  # the next segment may be a part of the value
                if pa.types.is_string(kind):
                    found &= _begins(name, text)
                break
            value = typed_value(text, kind)
            if value is not None:
                found &= pc.field(name) == value
        return found


def _begins(name: str, text: str) -> pc.Expression:
    """Return an expression that is true if a column is a text, or continues it with a slash."""
    after = chr(ord("/") + 1)
    return (pc.field(name) >= text) & (pc.field(name) < text + after)


def satisfiable(
    condition: pc.Expression, guarantees: Sequence[pc.Expression], schema: pa.Schema
) -> list[int]:
    """Return the positions of the guarantees under which a condition may be true.

    If a cast fails for one of them, all are returned.

    Args:
        condition: An expression.
        guarantees: Expressions about the values of columns: conjunctions of comparisons of a column
            with a value. pyarrow ignores other forms.
        schema: The columns.

    Cost: about 30 us for each.
    """
    # pyarrow evaluates guarantees only for fragments; none of these is ever opened.
    nowhere, form = pafs.LocalFileSystem(), ds.IpcFileFormat()
    fragments = [form.make_fragment(str(at), nowhere, known) for at, known in enumerate(guarantees)]
    dataset = ds.FileSystemDataset(fragments, schema, form, nowhere)
    try:
        return [int(each.path) for each in dataset.get_fragments(condition)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return list(range(len(guarantees)))


def fixed_values(column: str, condition: pc.Expression, schema: pa.Schema) -> pa.Array | None:
    """Return the values that a column can have where a condition is true.

    Args:
        column: A column of texts, whole numbers, booleans or dates.
        condition: The condition.
        schema: The columns.

    Returns:
        The values in ascending order, distinct, in the column's type; ``None`` if others are
        possible.
    """
    field, kind = pc.field(column), schema.field(column).type
    candidates = _candidates(condition, kind)
    if not 0 < len(candidates) <= MOST_CANDIDATES:
        return None
    others = [field.is_null()]
    if not pa.types.is_boolean(kind):  # both are candidates
        others += [field < candidates[0], field > candidates[-1]]
        others += [(field > low) & (field < high) for low, high in pairwise(candidates)]
    if satisfiable(condition, others, schema):
        return None
    equal = [field == value for value in candidates]
    return candidates.take(pa.array(satisfiable(condition, equal, schema), pa.int64()))


def _candidates(condition: pc.Expression, kind: pa.DataType) -> pa.Array:
    """Return the distinct values of a type that may occur in a condition's text, in order."""
    text = expression_text(condition)
    if pa.types.is_boolean(kind):
        return pa.array([False, True])
    if pa.types.is_string(kind):
        quoted = (_ESCAPE.sub(r"\1", each) for each in _QUOTED.findall(text))
        values = pa.array(list(quoted), kind)
    else:
        words = dict.fromkeys(_WORD.findall(_QUOTED.sub("", text)))
        values = pa.array(list(_cast(words, kind)), kind)
    distinct = values.unique()
    return distinct.take(pc.array_sort_indices(distinct))


def _cast(words: Iterable[str], kind: pa.DataType) -> Iterator[pa.Scalar]:
    """Yield the words that are values of a type."""
    for word in words:
        try:
            yield pa.scalar(word).cast(kind)
        except pa.ArrowInvalid:
            continue
