"""Places of this machine, reached so that what was checked is what is touched.

Whoever can write below a root can put a link in the place of a directory at any time, also between
the moment it is checked and the one it is used. So nothing is reached by its path: directories are
opened one by one from the top, each from the one before, and none of them may be a link
(``O_NOFOLLOW``). Where one is, the path that it means is found first, link by link, and each must
lead below a root before anything there is looked at; then that path is opened in the same way.
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
"""From an absolute path to the same below the real path of a root; ``None`` if it is below none.
It looks at nothing but the text."""

_OPENED_ONLY: Final[int] = getattr(os, "O_PATH", os.O_RDONLY)
_DIRECTORY: Final = _OPENED_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS: Final = 40
"""As many as the system follows."""
_ATTEMPTS: Final = 4
_A_LINK_OR_FILE: Final = frozenset({errno.ELOOP, errno.ENOTDIR})


def resolve(path: str, place_of: PlaceOf, called: str) -> str:
    """Return the path without links that a path means; what isn't there is taken as it is named.

    ``..`` in a link's text is taken out by the text alone.

    Args:
        path: Absolute.
        place_of: Knows the roots.
        called: What errors call the path: who is refused isn't to learn where roots and links are.

    Raises:
        RootNotAllowedError: It, or what a link leads to, lies below no root; nothing there was
            looked at.
        OSError: A link can't be read, or they go in a circle.
    """
    leads_to = path
    for _ in range(_MOST_LINKS):
        place = place_of(leads_to)
        if place is None:
            raise RootNotAllowedError(
                f"{called} leads outside the roots served", detail=f"{path} leads to {leads_to}"
            )
        link = _first_link(place)
        if link is None:
            return place
        at, text = link
        leads_to = posixpath.normpath(
            posixpath.join(posixpath.dirname(at), text) + place[len(at) :]
        )
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


@contextmanager
def opened_folder_of(
    path: str, place_of: PlaceOf, called: str, *, follow: bool, make: bool = False
) -> Iterator[tuple[int, str]]:
    """Open the directory that a path lies in; yield its descriptor, and the name there.

    Args:
        path: Absolute, below a root.
        place_of: Knows the roots.
        called: What errors call the path.
        follow: Whether a link at the path itself is followed; it has to lead below a root anyhow.
        make: Whether directories that aren't there are made.

    Raises:
        RootNotAllowedError: A link leads out of the roots.
        StorageUnavailableError: Links change faster than they can be followed.
        OSError: There is no such directory.
    """
    folder, name = _reached(path, place_of, called, follow=follow, make=make)
    try:
        yield folder, name
    finally:
        os.close(folder)


def _reached(
    path: str, place_of: PlaceOf, called: str, *, follow: bool, make: bool
) -> tuple[int, str]:
    place = path
    for _ in range(_ATTEMPTS):
        head, name = posixpath.split(place)
        try:
            folder = _walked(head, make=make)
        except OSError as exc:
            if exc.errno not in _A_LINK_OR_FILE:
                raise
            resolved = resolve(head, place_of, called)
            if resolved == head:
                raise  # a file is in the place of a directory
            place = posixpath.join(resolved, name)
            continue
        try:
            is_link = _is_link(name or ".", folder)
            real = resolve(place, place_of, called) if is_link else place
        except BaseException:
            os.close(folder)
            raise
        if not is_link or not follow:
            return folder, name or "."
        os.close(folder)
        place = real
    raise StorageUnavailableError(f"{called}: links on the way to it change all the time")


def _walked(path: str, *, make: bool) -> int:
    """Open a directory from the top, none of the directories on the way being a link."""
    folder = os.open("/", _DIRECTORY)
    for name in path.split("/"):
        if not name:
            continue
        try:
            inner = _entered(name, folder, make=make)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _entered(name: str, folder: int, *, make: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # another maker was quicker
        os.mkdir(name, dir_fd=folder)
    return os.open(name, _DIRECTORY, dir_fd=folder)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _first_link(place: str) -> tuple[str, str] | None:
    """Return the first link on the way to a place, the place itself included, and its text."""
    at = ""
    for name in place.split("/")[1:]:
        at = f"{at}/{name}"
        try:
            return at, os.readlink(at)
        except OSError as exc:
            if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                return None
            if exc.errno != errno.EINVAL:  # EINVAL: it is no link
                raise
    return None
