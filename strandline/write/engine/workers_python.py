"""Which Python the tasks of a Spark context run; sessions that have none are refused.

PySpark takes the variable ``PYSPARK_PYTHON``, for which ``spark-submit`` has the setting
``spark.pyspark.python``. Without it, tasks run the ``python3`` that the executors find, which isn't
that of a virtual environment whose Python started the driver by its path.

Source: PySpark 3.5 and 4 ``SparkContext._do_init``.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any, Final
from weakref import WeakSet

from strandline.write.engine.failed_task import import_error
from timeline.errors import ConfigError

SETTING: Final = "spark.pyspark.python"
VARIABLE: Final = "PYSPARK_PYTHON"
_DEFAULT: Final = "python3"
_CONNECT: Final = "pyspark.sql.connect"
NEEDED: Final = ("pyarrow", "numpy", "fsspec")
"""What tasks of this package import."""
_ADVICE: Final = (
    f"set {VARIABLE}, or {SETTING} with spark-submit, to a Python on the executors' machines that"
    f" has {', '.join(NEEDED)} and this package"
)

_checked: WeakSet[Any] = WeakSet()
"""Contexts whose executors were asked, or needn't be."""


def refuse_connect(value: object) -> None:
    """Refuse sessions and DataFrames of Spark Connect.

    Raises:
        ConfigError: ``value`` belongs to Spark Connect; the message names its class.
    """
    kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(value).__mro__]
    if any(kind.startswith(_CONNECT + ".") for kind in kinds):
        raise ConfigError(
            f"Spark Connect isn't supported: {kinds[0]} has no SparkContext in this process",
            hint="use a classic session, SparkSession.builder.master(...).getOrCreate()",
        )


def choose_python(context: Any) -> None:
    """Have tasks run the driver's Python if they are on its machine, and nothing names another.

    Args:
        context: A ``SparkContext``; functions that are made for it later run that Python.
    """
    if os.environ.get(VARIABLE) or context.pythonExec != _DEFAULT or context in _checked:
        return
    named = context.getConf().get(SETTING)
    if named:  # given to a session's builder, where PySpark ignores it
        context.pythonExec = named
    elif _is_on_this_machine(context) and sys.executable:
        context.pythonExec = sys.executable


def check_python(context: Any) -> None:
    """Ask executors elsewhere, whose Python nothing names, whether it has what tasks import.

    Cost: a job of one task, once for a context, if neither setting nor variable is given.

    Raises:
        ConfigError: It lacks packages, which are named.
    """
    if os.environ.get(VARIABLE) or _is_on_this_machine(context) or context in _checked:
        return
    if context.getConf().get(SETTING):
        _checked.add(context)  # as Spark copies all settings for each look at one
        return
    try:
        (missing,) = context.parallelize((NEEDED,), 1).map(missing_packages).collect()
    except Exception as failure:
        unknown = import_error(failure)
        if unknown is None:
            raise
        raise ConfigError(unknown.message, hint=_ADVICE) from None
    if missing:
        raise ConfigError(
            f"the Python that executors run, {context.pythonExec}, lacks {', '.join(missing)}",
            hint=_ADVICE,
        )
    _checked.add(context)


def missing_packages(names: tuple[str, ...]) -> list[str]:
    """Return those of some packages that this process can't import."""
    return [name for name in names if find_spec(name) is None]


def _is_on_this_machine(context: Any) -> bool:
    return str(context.master).startswith("local")
