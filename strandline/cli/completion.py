"""``strandline completion``: a shell's script; what completes partitions and instants.

Names come from the table itself. A shell waits for them: what isn't found within ``BUDGET_S``, or
can't be read, completes nothing, and nothing is printed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from strandline.cli.common_options import source_of
from strandline.cli.late_module import LateModule

if TYPE_CHECKING:
    from fsview import local_view
    from timeline import meta_client
    from timeline.storage import open as opening
    from timeline.storage.base import Storage
else:
    local_view = LateModule("fsview.local_view")
    meta_client = LateModule("timeline.meta_client")
    opening = LateModule("timeline.storage.open")

SHELLS: Final = ("bash", "fish", "zsh")
BUDGET_S: Final = 1.0
"""Seconds that a shell waits for names."""
_MOST: Final = 100
"""Most names that are offered."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script by which a shell completes commands, tables and their parts.

    Run it when a shell starts: eval "$(strandline completion bash)" in ~/.bashrc, the same with zsh
    in ~/.zshrc, or strandline completion fish | source in ~/.config/fish/config.fish. Completed are
    commands, options, names of tables.toml, and from a table its partitions and instants; a table
    that doesn't answer within a second completes nothing.
    """
    found = get_completion_class(shell)
    assert found is not None
    root = context.find_root()
    script = found(root.command, {}, "strandline", "_STRANDLINE_COMPLETE").source()
    click.echo(script.strip())


def complete_partition(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the path of a partition of the command's table."""
    open_view = local_view.open_view  # importing isn't part of what a shell may wait for

    def partitions(storage: Storage) -> list[str]:
        with closing(open_view(storage)) as view:
            return view.partitions()

    return _completed(context, partitions, incomplete)


def complete_instant(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the requested time of an active instant of the command's table, newest first."""
    open_table = meta_client.TableMetaClient.open

    def instants(storage: Storage) -> list[str]:
        timeline = open_table(storage).active_timeline()
        return [instant.requested_time for instant in reversed(timeline.instants)]

    return _completed(context, instants, incomplete)


def _completed(
    context: click.Context, names: Callable[[Storage], Iterable[str]], incomplete: str
) -> list[CompletionItem]:
    found: list[str] = []
    open_storage = opening.open_storage

    def find() -> None:
        # Whatever is wrong: a shell would show it between the words of the line that is typed.
        with suppress(Exception):
            given: dict[str, Any] = context.params
            # Click doesn't assign arguments if the option that is completed has no value yet.
            table = given["table"] or context.args[0]
            source = source_of(table, given.get("storage_options") or {}, None, None)
            storage = open_storage(source.path, source.storage_options)
            begun = (name for name in names(storage) if name.startswith(incomplete))
            found.extend(dict.fromkeys(begun))

    # A thread that is still busy ends with the process.
    thread = threading.Thread(target=find, daemon=True)
    thread.start()
    thread.join(BUDGET_S)
    return [CompletionItem(name) for name in found[:_MOST]]
