"""The command line, ``strandline``.

Commands are thin calls of the public API. Exit codes: 0 success, 1 failure, 2 bad usage. Messages
go to stderr.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from strandline.cli.fleet import fleet
from strandline.cli.serve import serve
from strandline.version import __version__


class _OneLine(click.Group):
    """A group of commands whose usage errors are one line, without the usage text."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments before the command."""
        if not args:  # click shows the help
            return super().make_context(info_name, args, parent, **extra)
        with _one_line():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        with _one_line():
            return super().invoke(ctx)


@contextmanager
def _one_line() -> Iterator[None]:
    """Reduce usage errors of the block to their message on one line."""
    try:
        yield
    except click.UsageError as error:
        raise click.UsageError(" ".join(error.format_message().split())) from error


@click.group(cls=_OneLine)
@click.version_option(__version__, prog_name="strandline")
def main() -> None:
    """Timeline service for tables in Apache Hudi's format."""


main.add_command(serve)
main.add_command(fleet)


if __name__ == "__main__":
    main(prog_name="strandline")
