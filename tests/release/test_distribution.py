"""Wheel and sdist: built, checked, equal; the wheel with every extra runs examples."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from strandline.version import __version__

pytestmark = [pytest.mark.dist, pytest.mark.product]

PACKED = ("timeline", "fsview", "executor_proxy", "strandline")


def run(command: list[str], folder: Path) -> str:
    # Not the checkout that runs these tests.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel that is built from it, as they are uploaded."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--outdir", str(folder), str(source)], folder)
    return folder


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def contents(wheel: Path) -> dict[str, str]:
    """Return the digest of each file of a wheel."""
    with zipfile.ZipFile(wheel) as packed:
        return {
            name: hashlib.sha256(packed.read(name)).hexdigest()
            for name in packed.namelist()
            if not name.endswith("/RECORD")  # the digests of the others
        }


def test_both_pass_the_checks_of_an_upload(built: Path, source: Path) -> None:
    files = sorted(map(str, built.iterdir()))
    assert [Path(name).name for name in files] == [
        f"strandline-{__version__}-py3-none-any.whl",
        f"strandline-{__version__}.tar.gz",
    ]
    told = run([sys.executable, "-m", "twine", "check", "--strict", *files], built)
    assert told.count("PASSED") == 2
    run([sys.executable, "-m", "check_wheel_contents", *files[:1]], source)


def test_the_sdist_makes_the_wheel_of_the_checkout(
    built: Path, source: Path, tmp_path: Path
) -> None:
    run([sys.executable, "-m", "build", "-w", "--outdir", str(tmp_path), str(source)], tmp_path)
    assert contents(only(tmp_path, "*.whl")) == contents(only(built, "*.whl"))


def test_the_wheel_has_every_file_of_the_packages_and_no_other(built: Path, source: Path) -> None:
    packed = {name for name in contents(only(built, "*.whl")) if ".dist-info/" not in name}
    files = {
        str(path.relative_to(source))
        for name in PACKED
        for path in (source / name).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert packed == files
    with tarfile.open(only(built, "*.tar.gz")) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert files < names
    assert not {name for name in names if name.startswith("tests/")}


def test_the_wheel_with_all_extras_runs_the_examples_that_need_no_spark(
    built: Path, source: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "new", with_pip=True)
    python = str(tmp_path / "new/bin/python")
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-compile"]
    run([*pip, f"{only(built, '*.whl')}[all]"], tmp_path)
    run([python, "-m", "pip", "check"], tmp_path)
    told = run([str(tmp_path / "new/bin/strandline"), "--version"], tmp_path)
    assert __version__ in told
    table = str(tmp_path / "prices")
    examples = source / "examples"
    told = run([python, str(examples / "without_spark.py"), table], tmp_path)
    assert "second commit: 1 updated, 1 inserted" in told
    assert "rows, now 3" in run([python, str(examples / "read_rows.py"), table], tmp_path)
    found = run([python, "-c", "import strandline; print(strandline.__file__)"], tmp_path)
    assert Path(found.strip()).is_relative_to(tmp_path / "new")
