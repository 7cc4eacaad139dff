"""``strandline serve``: a service of its own, for Hudi's writers and ours."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from fsview.store.heap import share_heap
from fsview.store.open import BUDGET_BYTES, KINDS, StoreOptions
from strandline.service.assembly import Parts
from strandline.service.bearer import read_token_file
from strandline.service.child import own_stdout, run_child
from strandline.service.options import (
    CHECK_INTERVAL_S,
    THREADS,
    PartsOptions,
    ServerOptions,
)
from strandline.service.server import ServiceServer
from timeline.errors import ConfigError, StoreError
from timeline.table_id import TableId

PORT = 26754
"""The port of Hudi's own standalone server."""


@click.command()
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="PATH",
    help="A table's base path, or a directory of tables, that may be served. Repeat for several.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind, only this.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to bind; 0 takes a free one and says which.",
)
@click.option(
    "--storage",
    type=click.Choice(list(KINDS), case_sensitive=False),
    default="memory",
    show_default=True,
    help="Where views are kept: memory, memory and a file (spillable), or RocksDB (rocksdb), from"
    " which a restart goes on.",
)
@click.option(
    "--store-dir",
    metavar="DIR",
    help="Directory for kinds of storage that keep files; rocksdb needs one, memory none.",
)
@click.option(
    "--memory",
    type=click.IntRange(1),
    metavar="MIB",
    default=BUDGET_BYTES >> 20,
    show_default=True,
    help="What answers, old snapshots and packed files may take in memory, in MiB.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="File with the bearer token that every request must carry.",
)
@click.option(
    "--no-token",
    is_flag=True,
    help="Admit everybody who reaches the port. Java clients need this: they can't send a token.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    default=THREADS,
    show_default=True,
    help="Threads for requests that aren't answered from ready bytes.",
)
@click.option(
    "--check-interval",
    type=click.FloatRange(0, 86400),
    metavar="SECONDS",
    default=CHECK_INTERVAL_S,
    show_default=True,
    help="How often one loaded partition is compared with storage; 0 turns it off.",
)
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
    help="How much is logged to stderr.",
)
@click.option("--child", is_flag=True, hidden=True)
def serve(child: bool, **options: Any) -> None:
    """Serve the tables below some roots until SIGTERM or SIGINT.

    Hudi's writers use it with hoodie.embed.timeline.server=false and
    hoodie.filesystem.view.type=REMOTE_FIRST (or REMOTE_ONLY); GET /healthz answers 200 when it
    can serve.
    """
    if child:
        run_child(os.fdopen(os.dup(0), "rb"), own_stdout())
    else:
        _serve(**options)


def _serve(
    *,
    roots: tuple[str, ...],
    host: str,
    port: int,
    storage: str,
    store_dir: str | None,
    memory: int,
    token_file: str | None,
    no_token: bool,
    threads: int,
    check_interval: float,
    log_level: str,
) -> None:
    share_heap()
    try:
        options = PartsOptions(
            _checked_roots(roots),
            _token(token_file, no_token),
            store=StoreOptions(storage, store_dir, memory << 20),
            check_interval_s=check_interval,
        )
        parts = Parts(options)
    except ConfigError as exc:
        raise click.UsageError(str(exc)) from exc
    except StoreError as exc:
        raise click.ClickException(str(exc)) from exc
    logging.basicConfig(
        level=log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        server = ServiceServer(parts, ServerOptions(host, port, threads))
    except ConfigError as exc:
        raise click.ClickException(str(exc)) from exc
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    admitted = "everybody" if no_token else "bearers of the token"
    server.run(
        lambda: click.echo(f"serving {', '.join(roots)} on {server.url} to {admitted}", err=True)
    )
    sys.stderr.flush()
    # A request stuck in storage has a thread that the interpreter would wait for.
    os._exit(0)


def _checked_roots(roots: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a list of roots that can't be meant."""
    if not roots:
        raise ConfigError("give at least one --root")
    for root in roots:
        if not root:
            raise ConfigError("--root is empty")
        table_id = TableId.of(root)
        if table_id.family == "file" and not Path(table_id.path).is_dir():
            raise ConfigError(f"--root {root}: no such directory")
    return roots


def _token(token_file: str | None, no_token: bool) -> str | None:
    """Return the token that was asked for; there must be a decision."""
    if no_token == (token_file is not None):
        raise ConfigError("give either --token-file FILE or --no-token")
    return None if token_file is None else read_token_file(token_file)
