"""``LateModule``: a module that is imported when something of it is first used.

A command's help uses nothing of Arrow, storage or tables, which take most of a second to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LateModule:
    """Has the attributes of a module, and imports it for the first of them.

    Type checkers see the import itself::

        if TYPE_CHECKING:
            import pyarrow as pa
        else:
            pa = LateModule("pyarrow")
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
