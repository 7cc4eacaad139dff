"""The text that Java gives floating-point numbers: ``Float.toString`` and ``Double.toString``.

The digits are the fewest that distinguish a number from its neighbours, as in Java 19 and later;
older releases of Java sometimes write one digit more.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

_LEAST_PLAIN: Final = 1e-3
_LEAST_SCIENTIFIC: Final = 1e7


def float_text(values: pa.Array) -> pa.Array:
    """Return the text of floats or doubles; nulls stay null.

    Cost: a Python step for each distinct value.
    """
    encoded = values.dictionary_encode()
    numbers = encoded.dictionary.to_numpy(zero_copy_only=False)
    return pa.array(map(_text, numbers), pa.string()).take(encoded.indices)


def _text(number: np.floating[Any]) -> str:
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or _LEAST_PLAIN <= abs(number) < _LEAST_SCIENTIFIC:
        return np.format_float_positional(number, unique=True, trim="0")
    text = np.format_float_scientific(number, unique=True, trim="0", exp_digits=1)
    mantissa, _, exponent = text.partition("e")
    if mantissa.endswith(".0"):
        # Java always writes two digits, so it prefers 4.9E-324 to 5.0E-324, which is less exact.
        closest = f"{float(number):.1e}"
        if type(number)(closest) == number:
            mantissa, _, exponent = closest.partition("e")
    return f"{mantissa}E{int(exponent)}"
