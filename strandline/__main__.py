"""The command line: ``strandline`` and its verbs.

Verbs are thin calls to the public API. Exit codes: 0 done, 1 the operation failed, 2 bad usage.
Messages go to stderr.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from strandline.serve import serve


def _version() -> str:
    try:
        return version("strandline")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"


class _OneLine(click.Group):
    """A group that refuses in one line: what is wrong, without how it is used."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read the words before the verb."""
        if not args:  # which is answered with the help
            return super().make_context(info_name, args, parent, **extra)
        with _one_line():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run a verb."""
        with _one_line():
            return super().invoke(ctx)


@contextmanager
def _one_line() -> Iterator[None]:
    """Take from a refusal what click would show before it."""
    try:
        yield
    except click.UsageError as error:
        raise click.UsageError(" ".join(error.format_message().split())) from error


@click.group(cls=_OneLine)
@click.version_option(_version(), prog_name="strandline")
def main() -> None:
    """Timeline service for tables in Apache Hudi's format."""


main.add_command(serve)


if __name__ == "__main__":
    main(prog_name="strandline")
