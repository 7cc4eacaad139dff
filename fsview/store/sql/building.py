"""``Building``: writes the many rows of one step in several transactions, before they are shown.

``fsview.store.sql.session`` describes this in the database. Another server may commit a
step meanwhile. Then the rows aren't shown. After adopting that step, the server writes only the
rows that differ from what it has written, which takes little time however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from fsview.store.base import RecordRows
from fsview.store.sql.database import TURN_S
from fsview.store.sql.session import Build, Session
from fsview.store.sql.shared_table import SharedTable, delete_all
from timeline.errors import StoreBehindError

_LOOKS: Final = 20
"""How often one that waits for another builder looks, in ``TURN_S``."""


class Building:
    """What one server builds of one table; not thread-safe."""

    def __init__(
        self,
        table: SharedTable,
        builder: bytes,
        *,
        at_once: int,
        lease_s: float,
        wait: Callable[[float], object],
    ) -> None:
        """Build nothing yet.

        Args:
            table: The table.
            builder: Random.
            at_once: Rows in one transaction.
            lease_s: Longest time that a transaction may take.
            wait: Waits for a number of seconds.
        """
        self._table = table
        self._builder = builder
        self._at_once = at_once
        self._lease_s = lease_s
        self._wait = wait
        self._build: Build | None = None
        self._written: dict[str, bytes | None] = {}

    def write(self, rows: RecordRows, check: Callable[[Session], object]) -> None:
        """Write rows where no reader sees them.

        Args:
            rows: All of the step; ``None``: the one that is shown will go.
            check: Raises if nothing is to be begun.

        Raises:
            StoreBehindError: Another builder is at work, or has taken the place of this one.
            StoreError: They can't be written. The next attempt starts over.
        """
        if self._build is not None:
            # Another may have taken its place since.
            with suppress(StoreBehindError):
                self._write(rows)
                return
        self._build, self._written = self._begun(check), {}
        self._write(rows)

    def _write(self, rows: RecordRows) -> None:
        try:
            for names in self._different(rows):
                part = {name: rows[name] for name in names if name in rows}
                dropped = [name for name in names if name not in rows]
                with self._table.batch() as session:
                    self._build = self._continued(session)
                    session.build_rows(self._build, part, dropped)
                self._written.update(part)
                for name in dropped:
                    del self._written[name]
        except BaseException:
            # Whether the last transaction took effect isn't known.
            self.give_up()
            raise

    def _continued(self, session: Session) -> Build:
        build = None
        if self._build is not None and session.head() is not None:
            build = session.continue_build(self._build, self._lease_s)
        if build is None:
            raise self._behind()
        return build

    def show(self, session: Session, *, anew: bool) -> None:
        """Show what was written, with what else the transaction does.

        Args:
            session: The transaction.
            anew: Whether these are all rows there are.

        Raises:
            StoreBehindError: It isn't there any more.
        """
        if self._build is None or not session.show_build(self._build, self._lease_s, anew=anew):
            self.give_up()
            raise self._behind()

    def give_up(self) -> None:
        """Rewrite everything next time: what was written is shown already, or unreliable."""
        self._build, self._written = None, {}

    def fold(self, session: Session, most: int) -> int:
        """Fold some rows, unless another is at it; return how many."""
        return session.fold_rows(self._builder, most, self._lease_s)

    def _begun(self, check: Callable[[Session], object]) -> Build:
        for look in range(_LOOKS + 1):
            if look:
                self._wait(TURN_S / _LOOKS)
            # The remains of a builder that died.
            delete_all(self._table.batch, self.fold, self._at_once)
            with self._table.batch() as session:
                check(session)
                build = session.begin_build(self._builder, self._lease_s)
            if build is not None:
                return build
        raise StoreBehindError(f"{self._table}: another server writes many rows")

    def _different(self, rows: RecordRows) -> Iterator[Sequence[str]]:
        """Yield the names of rows that aren't written as they are to be, some at a time.

        There is at least one transaction, which finds out whether what was written is there.
        """
        written = self._written
        names = [n for n, row in rows.items() if n not in written or written[n] != row]
        names += [name for name in written if name not in rows]
        names.sort()
        for start in range(0, max(len(names), 1), self._at_once):
            yield names[start : start + self._at_once]

    def _behind(self) -> StoreBehindError:
        return StoreBehindError(
            f"{self._table}: what was written of a step is gone, as another server writes many rows"
        )
