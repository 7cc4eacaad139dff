"""Finders of archives are forgotten, modules in them are found all the same, and stay frozen."""

from __future__ import annotations

import gc
import importlib
import pickle
import sys
import zipfile
from zipimport import zipimporter

import pytest

from strandline.write.engine.worker_reuse import (
    InWorker,
    forget_finders,
    freeze_modules,
    prepare_reuse,
)


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """An archive on Python's path, with a package of which a module has been imported."""
    path = tmp_path / "spark" / "archived.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as made:
        for name in ("__init__", "first", "second"):
            made.writestr(f"archived_package/{name}.py", f"NAME = {name!r}")
    monkeypatch.syspath_prepend(path)
    importlib.import_module("archived_package.first")
    yield str(path)
    for name in [each for each in sys.modules if each.startswith("archived_package")]:
        del sys.modules[name]


def finders(archive):
    return [path for path in sys.path_importer_cache if path.startswith(archive)]


def test_modules_of_an_archive_are_found_without_finders(archive, tmp_path):
    assert len(finders(archive)) == 2
    forget_finders(str(tmp_path / "added"))
    assert finders(archive) == []
    assert importlib.import_module("archived_package.second").NAME == "second"


def test_finders_of_added_files_stay(archive, tmp_path):
    forget_finders(str(tmp_path / "spark"))
    assert len(finders(archive)) == 2


@pytest.mark.usefixtures("archive")
def test_finders_of_folders_stay(tmp_path):
    found = sys.path_importer_cache.items()
    of_folders = [path for path, finder in found if not isinstance(finder, zipimporter)]
    forget_finders(str(tmp_path / "added"))
    assert list(sys.path_importer_cache) == of_folders


@pytest.fixture
def unfrozen():
    """Freezing is begun by the test; yield how many objects are frozen (tests/conftest.py)."""
    frozen = gc.get_freeze_count()
    freeze_modules.cache_clear()
    yield frozen
    freeze_modules.cache_clear()
    if not frozen:
        gc.unfreeze()


@pytest.mark.property
def test_objects_are_frozen_once(unfrozen):
    freeze_modules()
    before = gc.get_freeze_count()
    later = [[number] for number in range(1000)]
    freeze_modules()
    assert unfrozen < gc.get_freeze_count() <= before
    assert len(later) == 1000


@pytest.mark.property
def test_a_process_is_prepared_after_the_last_row_or_an_error(archive, tmp_path, unfrozen):
    def rows():
        yield 1
        raise OSError("a fault")

    made = prepare_reuse(rows(), str(tmp_path / "added"))
    assert next(made) == 1
    assert finders(archive)
    with pytest.raises(OSError, match="a fault"):
        next(made)
    assert finders(archive) == []
    assert gc.get_freeze_count() > unfrozen


def doubled(numbers):
    for number in numbers:
        yield 2 * number


@pytest.mark.property
def test_a_function_is_unpickled_when_its_first_row_comes(tmp_path, unfrozen):
    task = InWorker(pickle.dumps(doubled), lambda: str(tmp_path))
    assert list(task(iter([1, 2, 3]))) == [2, 4, 6]
    # Its modules need not even exist where it has nothing to do.
    elsewhere = InWorker(b"cmissing_package\nname\n.", lambda: str(tmp_path))
    assert list(elsewhere(iter([]))) == []
    with pytest.raises(ModuleNotFoundError, match="missing_package"):
        list(elsewhere(iter([1])))
    assert gc.get_freeze_count() > unfrozen
