"""The command line, ``strandline``.

Commands are thin calls of the public API, and are imported when they are called. Exit codes: 0
done, 1 failed, 2 bad usage. What was asked for goes to stdout, all other words to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from errno import EBADF, EPIPE
from importlib import import_module
from typing import Any, Final

import click

from strandline.version import __version__

COMMANDS: Final[Mapping[str, str]] = {
    "archive": "Show which instants of a table an archival would move, or move them.",
    "clean": "Show what a clean of a table would delete, or delete it.",
    "commit": "Show what a commit wrote to each partition, and what it recorded about itself.",
    "compact": "Show which file groups of a table a compaction would take, or compact them.",
    "completion": "Print the script by which a shell completes commands, tables and their parts.",
    "count": "Print the number of a table's rows.",
    "doctor": "Show what is wrong with a table, and what to do about it.",
    "files": "Show the files that readers of a table read: the newest slice of each file group.",
    "fleet": "Show or simulate a fleet of servers; change what its servers share.",
    "history": "Show all instants of a table, archived ones first, and what each did.",
    "incremental": "Print the rows that the commits of a time wrote: after --since, up to --until.",
    "inspect": "Show one kind of a table's metadata.",
    "partitions": "Show the partitions of a table, with the number and size of their files.",
    "pins": "Show the leases by which readers hold files of a table, or revoke them.",
    "properties": "Show the properties of a table: those of hoodie.properties, by name.",
    "read": "Print the rows of a table, those of its newest instant or of an earlier time.",
    "schema": "Show the columns of a table's rows, meta columns first, with their Arrow types.",
    "serve": "Serve the tables below the given roots until SIGTERM or SIGINT.",
    "slices": "Show every file slice of a table's file groups, the newest of each group first.",
    "stats": "Show how many files a table has and how large they are, also by partition.",
    "tables": "Show the tables below a root.",
    "top": "Show what a running service does: requests, latencies, refusals, memory, tables.",
    "why": "Show why a file of a table is still there, or gone.",
}
"""Name → the first line of its help."""
_BESIDE: Final = {
    **dict.fromkeys(
        ("commit", "files", "history", "inspect", "partitions", "properties", "schema", "slices"),
        "table_metadata",
    ),
    **dict.fromkeys(("count", "incremental", "read"), "rows"),
    "stats": "table_metadata",
    "why": "clean",
}
"""Name → the module of ``strandline.cli`` that has it, where that has another name."""
_HELP_SHOWN: Final[Any] = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""A usage error whose message is the help of a group; click 8.1 has none."""


class _Lazy(click.Group):
    """A group of commands that are imported when they are called, not for the list of all.

    Usage errors are one line, without the usage text.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"strandline.cli.{_BESIDE.get(cmd_name, cmd_name)}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Complete the name of a command, or an option before it."""
        found = [
            click.shell_completion.CompletionItem(name, help=line)
            for name, line in sorted(COMMANDS.items())
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments before the command."""
        # Help and version are printed here. Without arguments help is click's usage error.
        with _one_line() if args else nullcontext(), _written():
            return super().make_context(info_name, args, parent, **extra)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; an error names the nearest.

        Raises:
            OSError: There is no stdout for what the command prints. It is looked for before the
                command changes anything; ``serve`` prints nothing.
        """
        name = args[0]
        if sys.stdout is None and name != "serve" and not ctx.resilient_parsing:
            raise OSError(EBADF, "stdout is closed")
        if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = import_module("strandline.settings.setting").nearest(name, COMMANDS)
        hint = f"; the nearest is {near!r}" if near else ", see strandline --help"
        raise click.UsageError(f"No such command {name!r}{hint}")

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        failure = import_module("strandline.cli.failure")  # help of the list imports nothing
        with _one_line(), _written(), failure.failures_in_a_line(debug=ctx.params["debug"]):
            return super().invoke(ctx)


@contextmanager
def _one_line() -> Iterator[None]:
    """Reduce usage errors of the block to their message on one line without control characters."""
    try:
        yield
    except _HELP_SHOWN:
        raise
    except click.UsageError as error:
        failure = import_module("strandline.cli.failure")
        told = failure.in_a_line(error.format_message())
        if isinstance(error, click.NoSuchOption) and error.ctx is not None:
            told = failure.why_untaken(error.ctx.info_name, error.option_name) or told
        raise click.UsageError(told) from error


@contextmanager
def _written() -> Iterator[None]:
    """End the command in one line if its output can't be written, as on a full disk."""
    try:
        yield
    except OSError as error:
        # click ends the command silently if the reader has gone (EPIPE). Errors of files name one.
        if error.errno == EPIPE or error.filename is not None:
            raise
        _drop_output()
        raise click.ClickException(f"can't write: {error.strerror or error}") from error


def _drop_output() -> None:
    """Discard what is left to write; Python would write it again at exit, and exit with 120."""
    with suppress(AttributeError, OSError, ValueError):  # no stream, or one without a file
        output = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output)
        os.close(nowhere)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="strandline")
@click.option("--debug", is_flag=True, help="Show the traceback of an error, too.")
def main(debug: bool) -> None:
    """Read, keep up and serve tables in Apache Hudi's format."""


if __name__ == "__main__":
    main(prog_name="strandline")
