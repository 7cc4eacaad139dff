"""Local paths opened without a race between check and use (TOCTOU).

Anybody who can write below a root can replace a directory by a link at any time, also between the
check of a path and its use. So no path is passed to the system as a whole: directories are opened
one by one from the top, each relative to its parent, and none may be a link (``O_NOFOLLOW``). If
one is a link, its target is resolved first, link by link. Each target must lie below a root before
anything there is touched. Then the resolved path is opened in the same way.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from timeline.errors import RootNotAllowedError, StorageUnavailableError

PlaceOf = Callable[[str], "str | None"]
"""Maps an absolute path to the same path below the real path of a root; ``None`` if it is below no
root. Works on the text alone."""

_OPENED_ONLY: Final[int] = getattr(os, "O_PATH", os.O_RDONLY)
_DIRECTORY: Final = _OPENED_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS: Final = 40
"""Linux's own limit (``MAXSYMLINKS``)."""
_ATTEMPTS: Final = 4
_A_LINK_OR_FILE: Final = frozenset({errno.ELOOP, errno.ENOTDIR})


def resolve(path: str, place_of: PlaceOf, called: str) -> str:
    """Return a path with its links resolved; components that don't exist are kept.

    ``..`` in a link's target is resolved by the text alone.

    Args:
        path: Absolute.
        place_of: Maps paths to the roots.
        called: The path's name in errors, which must not reveal where roots and links are.

    Raises:
        RootNotAllowedError: The path, or a link's target, lies below no root; nothing there was
            touched.
        OSError: A link can't be read, or the links form a loop.
    """
    target = path
    for _ in range(_MOST_LINKS):
        place = place_of(target)
        if place is None:
            raise RootNotAllowedError(
                f"{called} leads outside the roots served", detail=f"{path} leads to {target}"
            )
        link = _first_link(place)
        if link is None:
            return place
        at, text = link
        target = posixpath.normpath(posixpath.join(posixpath.dirname(at), text) + place[len(at) :])
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


@contextmanager
def opened_folder_of(
    path: str, place_of: PlaceOf, called: str, *, follow: bool, make: bool = False
) -> Iterator[tuple[int, str]]:
    """Open the directory that contains a path; yield its descriptor and the name in it.

    Args:
        path: Absolute, below a root.
        place_of: Maps paths to the roots.
        called: The path's name in errors.
        follow: Whether a link at the path itself is followed; it must lead below a root either way.
        make: Whether missing directories are created.

    Raises:
        RootNotAllowedError: A link leads out of the roots.
        StorageUnavailableError: Links keep changing while they are resolved.
        OSError: There is no such directory.
    """
    folder, name = _open_folder(path, place_of, called, follow=follow, make=make)
    try:
        yield folder, name
    finally:
        os.close(folder)


def _open_folder(
    path: str, place_of: PlaceOf, called: str, *, follow: bool, make: bool
) -> tuple[int, str]:
    place = path
    for _ in range(_ATTEMPTS):
        head, name = posixpath.split(place)
        try:
            # Open without checking first: a link created after the check would defeat it.
            folder = _open_without_links(head, make=make)
        except OSError as exc:
            if exc.errno not in _A_LINK_OR_FILE:
                raise
            resolved = resolve(head, place_of, called)
            if resolved == head:
                raise  # a component is a file
            place = posixpath.join(resolved, name)
            continue
        try:
            # Checked in the open directory, which nobody can replace any more.
            is_link = _is_link(name or ".", folder)
            real = resolve(place, place_of, called) if is_link else place
        except BaseException:
            os.close(folder)
            raise
        if not is_link or not follow:
            return folder, name or "."
        os.close(folder)
        # Open the target in the same way: it may have been replaced since it was resolved.
        place = real
    raise StorageUnavailableError(f"{called}: links on the way to it change all the time")


def _open_without_links(path: str, *, make: bool) -> int:
    """Open a directory component by component, following no link."""
    folder = os.open("/", _DIRECTORY)
    for name in path.split("/"):
        if not name:
            continue
        try:
            inner = _open_child(name, folder, make=make)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _open_child(name: str, folder: int, *, make: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # created by another process meanwhile
        os.mkdir(name, dir_fd=folder)
    return os.open(name, _DIRECTORY, dir_fd=folder)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _first_link(place: str) -> tuple[str, str] | None:
    """Return the first component of a path that is a link, and the link's target."""
    at = ""
    for name in place.split("/")[1:]:
        at = f"{at}/{name}"
        try:
            return at, os.readlink(at)
        except OSError as exc:
            if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                return None
            if exc.errno != errno.EINVAL:  # EINVAL: not a link
                raise
    return None
