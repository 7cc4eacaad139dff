"""``OnceFaulty``: a storage that goes wrong once, in whichever process comes there first.

It pickles, so that tasks on executors carry it. That it went wrong is a file outside of the table,
made exclusively: that is what "once" goes by, over all processes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from timeline.errors import StorageUnavailableError
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage

RAISE, DIE = "raise", "die"


class OnceFaulty(Storage):
    """A local storage whose first call of one kind fails.

    Args:
        base_path: The table's.
        flag: The file that says that it went wrong.
        kind: ``list``, ``stat``, ``read``, ``open_input``, ``create``, ``create_stream``, ``close``
            (after its effect), ``delete`` or ``delete_tree``.
        action: ``raise`` an error, ``die`` as the process that is there, or a process id: kill that
            one and go on.
        within: Only paths that contain this.
        only_in_tasks: Whether calls of the process that made the storage are left alone.
    """

    def __init__(
        self,
        base_path,
        flag,
        kind,
        action=RAISE,
        within="",
        *,
        only_in_tasks=False,
        maker=None,
        inner=None,
    ):
        self.base_path = str(base_path)
        self._spec = (str(flag), kind, action, within)
        self._only_in_tasks = only_in_tasks
        self._maker = maker or os.getpid()
        self._inner = inner or LocalStorage(self.base_path)

    def __reduce__(self):
        return (_rebuilt, (self.base_path, self._spec, self._only_in_tasks, self._maker))

    @property
    def calls(self):
        return self._inner.calls

    @property
    def happened(self) -> bool:
        return Path(self._spec[0]).exists()

    def for_cause(self, cause):
        return self._like(self._inner.for_cause(cause))

    def _like(self, inner):
        return OnceFaulty(
            self.base_path,
            *self._spec,
            only_in_tasks=self._only_in_tasks,
            maker=self._maker,
            inner=inner,
        )

    def _check(self, kind, path):
        flag, wanted, action, within = self._spec
        if kind != wanted or within not in path:
            return
        if self._only_in_tasks and os.getpid() == self._maker:
            return
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if action == RAISE:
            raise StorageUnavailableError(f"injected: {kind} {path}")
        os.kill(os.getpid() if action == DIE else int(action), signal.SIGKILL)

    def list(self, path):
        self._check("list", path)
        return self._inner.list(path)

    def stat(self, path):
        self._check("stat", path)
        return self._inner.stat(path)

    def read(self, path, *about):
        self._check("read", path)
        return self._inner.read(path, *about)

    def open_input(self, path, *about):
        self._check("open_input", path)
        return self._inner.open_input(path, *about)

    def create(self, path, data=b""):
        self._check("create", path)
        self._inner.create(path, data)

    @contextmanager
    def create_stream(self, path) -> Iterator:
        self._check("create_stream", path)
        with self._inner.create_stream(path) as stream:
            yield stream
        self._check("close", path)

    def replace(self, path, data):
        self._inner.replace(path, data)

    def make_dir(self, path):
        self._inner.make_dir(path)

    def delete(self, path):
        self._check("delete", path)
        return self._inner.delete(path)

    def delete_tree(self, path):
        self._check("delete_tree", path)
        return self._inner.delete_tree(path)


def _rebuilt(base_path, spec, only_in_tasks, maker):
    return OnceFaulty(base_path, *spec, only_in_tasks=only_in_tasks, maker=maker)
