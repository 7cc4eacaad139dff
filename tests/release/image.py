"""A container file, built and run without a registry of images: in a folder, as another user.

``Image`` stands for the images of ``python:…``: an interpreter of its own with pip. Paths of a
stage lie in the folder; a later stage takes them from there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

CONTAINERFILE = Path(__file__).parents[2] / "Containerfile"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, such as ``RUN``, and what follows it, on one line."""

    name: str
    text: str

    def words(self) -> list[str]:
        """Return its arguments: in the form of JSON, or divided by spaces; no ``--options``."""
        text = re.sub(r"^(--\S+ )+", "", self.text).removeprefix("CMD ")
        found: list[str] = json.loads(text) if text.startswith("[") else text.split()
        return found


@dataclass(slots=True)
class Stage:
    """What begins with a ``FROM``."""

    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def only(self, name: str) -> Instruction:
        """Return the one instruction of a name."""
        (found,) = (each for each in self.instructions if each.name == name)
        return found


def stages_of(text: str) -> list[Stage]:
    """Return the stages of a container file."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    stages: list[Stage] = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        name, rest = line.split(maxsplit=1)
        rest = " ".join(rest.split())
        if name == "FROM":
            base, _, alias = rest.partition(" AS ")
            stages.append(Stage(base, alias))
        else:
            stages[-1].instructions.append(Instruction(name, rest))
    return stages


class Image:
    """A stage that was built in a folder.

    Args:
        folder: Where its files lie; others must be able to read it.
        context: What ``COPY`` copies from.
    """

    def __init__(self, folder: Path, context: Path) -> None:
        self.folder = folder
        self._context = context
        self._base = folder / "usr/local"
        self.environment = {
            "PATH": f"{self._base}/bin:/usr/bin:/bin",
            "LD_LIBRARY_PATH": str(self._base / "lib"),
            "LC_ALL": "C.UTF-8",
        }
        self.user: tuple[int, int] | None = None

    def make_base(self) -> None:
        """Copy the interpreter that runs this, and give it a pip."""
        executable = Path(os.path.realpath(sys.executable))
        (self._base / "bin").mkdir(parents=True)
        shutil.copy(executable, self._base / "bin" / executable.name)
        for name in ("python", "python3"):
            (self._base / "bin" / name).symlink_to(executable.name)
        standard = Path(sysconfig.get_path("stdlib"))
        shutil.copytree(
            standard,
            self._base / "lib" / standard.name,
            ignore=shutil.ignore_patterns("site-packages", "__pycache__", "test", "idlelib"),
        )
        for library in Path(sys.base_prefix, "lib").glob("libpython*.so*"):
            shutil.copy(library, self._base / "lib")
        # With the pip of this environment: Debian's Python has no ensurepip of its own.
        pip = [sys.executable, "-m", "pip", "--python", str(self._base / "bin" / "python3")]
        self.run([*pip, "install", "--root-user-action=ignore", "pip"])

    def build(self, stage: Stage) -> None:
        """Do what the instructions of a stage say."""
        for each in stage.instructions:
            if each.name == "COPY" and not each.text.startswith("--from="):
                *sources, target = each.words()
                self._copy(sources, target)
            elif each.name == "RUN":
                self.run(["sh", "-ec", each.text])
            elif each.name == "ENV":
                name, _, value = each.text.partition("=")
                value = self.mapped(value).replace(f"${name}", self.environment.get(name, ""))
                self.environment[name] = value
            elif each.name == "USER":
                user, _, group = each.text.partition(":")
                self.user = int(user), int(group)

    def _copy(self, sources: list[str], target: str) -> None:
        place = Path(self.mapped(target))
        for source in sources:
            found = self._context / source
            if found.is_dir():
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(found, place, ignore=ignore, dirs_exist_ok=True)
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, place)

    def mapped(self, text: str) -> str:
        """Return a text whose paths of the image lie in the folder."""
        return re.sub(r"(?<![\w./:])/(?=(src|opt|lake|run)\b)", f"{self.folder}/", text)

    def command(self, words: list[str]) -> list[str]:
        """Return the command that runs words as the image's user, which root can become."""
        mapped = [self.mapped(word) for word in words]
        if self.user is None or os.geteuid() != 0:
            return mapped
        user, group = self.user
        return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", *mapped]

    def run(self, words: list[str]) -> None:
        """Run a command of the build, which must succeed."""
        done = subprocess.run(
            self.command(words),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
