"""The command line: ``strandline`` and its verbs.

Verbs are thin calls to the public API. Exit codes: 0 done, 1 the operation failed, 2 bad usage.
Messages go to stderr.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import click

from strandline.serve import serve


def _version() -> str:
    try:
        return version("strandline")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"


class _OneLine(click.Group):
    """A group that refuses in one line: what is wrong, without how it is used."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            said = " ".join(error.format_message().split())
            raise click.UsageError(said) from error


@click.group(cls=_OneLine)
@click.version_option(_version(), prog_name="strandline")
def main() -> None:
    """Timeline service for tables in Apache Hudi's format."""


main.add_command(serve)


if __name__ == "__main__":
    main(prog_name="strandline")
