"""The values to which a filter fixes a column, as far as pyarrow can prove it.

pyarrow shows of an expression only its text. Whatever looks like a value there is a candidate, and
the candidates count if pyarrow finds the filter false for all other values: those below, between
and above them, and null. So a text that is misread leaves the question open, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from strandline.read.filter.expression_text import expression_text

MOST_CANDIDATES: Final = 256
"""The most values that are tried."""

_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r'\\(["\\])')
_WORD: Final = re.compile(r"[\w+-]+")


def satisfiable(
    condition: pc.Expression, guarantees: Sequence[pc.Expression], schema: pa.Schema
) -> list[int]:
    """Return the positions of the guarantees under which a condition may be true.

    They are all if it can't be evaluated for one of them: it casts a value that can't be cast.

    Args:
        condition: An expression.
        guarantees: Expressions that say what values columns have: conjunctions of comparisons of
            a column with a value. Of others pyarrow makes nothing.
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
        The values in order, none twice; ``None`` if there are others, or if that isn't certain.
    """
    field, kind = pc.field(column), schema.field(column).type
    candidates = _candidates(condition, kind)
    if not 0 < len(candidates) <= MOST_CANDIDATES:
        return None
    others = [field.is_null()]
    if not pa.types.is_boolean(kind):  # of which both are candidates
        others += [field < candidates[0], field > candidates[-1]]
        others += [(field > low) & (field < high) for low, high in pairwise(candidates)]
    if satisfiable(condition, others, schema):
        return None
    equal = [field == value for value in candidates]
    return candidates.take(pa.array(satisfiable(condition, equal, schema), pa.int64()))


def _candidates(condition: pc.Expression, kind: pa.DataType) -> pa.Array:
    """Return the distinct values of a type that a condition's text may have, in order."""
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
