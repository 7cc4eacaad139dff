"""What a damaged file may do: be read, or be refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from timeline.errors import StrandlineError


@contextmanager
def perhaps_refused(named: str, refused: list[str] | None = None) -> Iterator[None]:
    """Let pass an error of Strandline's that names the file."""
    try:
        yield
    except StrandlineError as error:
        if re.search(named, str(error)) is None:
            raise
        if refused is not None:
            refused.append(str(error))
