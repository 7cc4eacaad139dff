"""What the packages offer: sorted, importable, and light enough for an executor."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ("timeline", "fsview", "executor_proxy", "strandline")

# What the README shows and others build on; a name is taken away on purpose only.
PUBLIC = {
    "strandline": {"LocalEngine", "Table", "TimelineService", "WriteClient", "__version__"},
    "executor_proxy": {"LookupReport", "ViewLocation", "connect"},
}

# Libraries of the driver: an executor has none of them.
DRIVER_LIBRARIES = (
    "flask",
    "werkzeug",
    "uvloop",
    "httptools",
    "click",
    "pyspark",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_sorted_and_true(package: str) -> None:
    module = importlib.import_module(package)
    names = list(getattr(module, "__all__", ()))
    assert names == sorted(names)
    assert all(hasattr(module, name) for name in names)


@pytest.mark.parametrize("package", sorted(PUBLIC))
def test_public_names_stay(package: str) -> None:
    assert PUBLIC[package] <= set(importlib.import_module(package).__all__)


def modules_after(statement: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(told.stdout.split())


@pytest.mark.parametrize("package", ["timeline", "fsview", "executor_proxy"])
def test_executor_packages_load_no_driver_library(package: str) -> None:
    loaded = modules_after(f"import {package}")
    assert not loaded & set(DRIVER_LIBRARIES)


@pytest.mark.property
def test_a_drivers_service_loads_libraries_with_the_first_archive_url_or_page() -> None:
    loaded = modules_after("import strandline.cli.serve")
    assert not loaded & {"pyarrow", "numpy", "fsspec", "flask"}


def test_version_is_that_of_the_distribution() -> None:
    """The distribution's metadata take the version from the package, without importing it."""
    package = importlib.import_module("strandline")
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
    assert re.fullmatch(r"\d+\.\d+\.\d+", package.__version__)
    assert 'dynamic = ["version"]' in project
    assert 'version = { attr = "strandline.version.__version__" }' in project


def test_front_door_loads_no_driver_library_until_a_name_is_used() -> None:
    loaded = modules_after("import strandline")
    assert not loaded & {"pyspark", "httptools", "flask"}
