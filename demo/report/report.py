"""The values of a report: the same feed with the service on and off, side by side.

``Report`` has both runs, their proofs and, in ``failures``, all that is wrong with them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from demo.record import COPY_ON_WRITE, FileLife, GroupProof, LogRecord, Proof, RunRecord
from demo.report.lookups import account, unexpected

KINDS: Final = ("list", "stat", "read")
"""The kinds of storage calls that the report compares: those that don't write."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """Storage calls of one kind and cause in both runs.

    Attributes:
        kind: The kind of call.
        cause: The cause; ``""`` for the total of the kind.
        on: Calls with the service on, including those of its process.
        of_service: The calls of the service's process among ``on``.
        off: Calls with the service off.
    """

    kind: str
    cause: str
    on: int
    of_service: int
    off: int


@dataclass(frozen=True, slots=True)
class Report:
    """The runs of one feed.

    Attributes:
        days: Number of days of the feed.
        table_version: The tables' version.
        rows: Number of rows at the end of the replay.
        on: The run with the service.
        off: The run without it.
        proofs: State → results of the readers, for the tables after the kill and at the end.
        killed: The run in which the service was killed; ``None`` if it was left out.
        groups: Run → comparison of its file groups with those of ``on``.
        table_type: The tables' type.
        logs: Run → the logs of its table; empty for copy-on-write tables.
        life: What happened to one data file of ``on``, and why; ``None`` if none was committed.
    """

    days: int
    table_version: int
    rows: int
    on: RunRecord
    off: RunRecord
    proofs: Mapping[str, tuple[Proof, ...]]
    killed: RunRecord | None = None
    groups: Mapping[str, GroupProof] = field(default_factory=dict)
    life: FileLife | None = None
    table_type: str = COPY_ON_WRITE
    logs: Mapping[str, LogRecord] = field(default_factory=dict)

    @property
    def failures(self) -> list[str]:
        """The checks that failed, a sentence each."""
        failures = [
            f"{of}: {proof.reader} differs: {proof.difference}"
            for of, proofs in self.proofs.items()
            for proof in proofs
            if not proof.holds
        ]
        # Not all list calls: those of a repair depend on how long it waits for the killed job.
        on, off = (run.calls["list", "lookup"] for run in (self.on, self.off))
        if off <= on:
            failures.append(f"without the service look-ups listed {off} times, with it {on}")
        if self.on.readers is not None and self.on.readers.list_calls:
            lists = self.on.readers.list_calls
            failures.append(f"service on: a reader's tasks made {lists} list calls")
        failures += [
            f"{of}: the file groups differ: {proof.difference}"
            for of, proof in self.groups.items()
            if proof.difference is not None
        ]
        failures += [f"service on: {failure}" for failure in unexpected(self.on)]
        if self.killed is not None:
            failures += [f"service killed: {failure}" for failure in unexpected(self.killed)]
        if len({*self.logs.values()}) > 1:
            failures.append(f"the runs wrote or merged other logs: {dict(self.logs)}")
        for run in (self.on, self.off):
            if not run.sum_of_lengths("rolled_back"):
                failures.append(f"service {_word(run)}: the killed write was not rolled back")
        return failures

    @property
    def runs(self) -> dict[str, RunRecord]:
        """The runs by name, such as ``service on``."""
        runs = {"service on": self.on, "service off": self.off}
        return runs if self.killed is None else runs | {"service killed": self.killed}

    @property
    def account(self) -> list[str]:
        """What happened in the run in which the service was killed, a sentence each."""
        groups = self.groups.get("service killed")
        return [] if self.killed is None else account(self.killed, groups)

    def call_rows(self) -> Iterator[CallRow]:
        """Yield, for each kind, a row for each cause, most frequent first, and a total."""
        on, of_service, off = self.on.calls, self.on.service_calls, self.off.calls
        for kind in KINDS:
            keys = sorted(
                {key for key in (*on, *off) if key[0] == kind},
                key=lambda key: (-on[key] - off[key], key),
            )
            for key in keys:
                yield CallRow(*key, on[key], of_service[key], off[key])
            own = sum(n for (of, _), n in of_service.items() if of == kind)
            yield CallRow(kind, "", self.on.calls_of(kind), own, self.off.calls_of(kind))

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        plain = ("days", "table_version", "table_type", "rows")
        values = {name: getattr(self, name) for name in plain}
        values["logs"] = {of: dataclasses.asdict(logs) for of, logs in self.logs.items()}
        proofs = {of: list(map(dataclasses.asdict, found)) for of, found in self.proofs.items()}
        values |= {"on": self.on.as_json(), "off": self.off.as_json(), "proofs": proofs}
        values["killed"] = None if self.killed is None else self.killed.as_json()
        groups = {of: dataclasses.asdict(proof) for of, proof in self.groups.items()}
        values["life"] = None if self.life is None else dataclasses.asdict(self.life)
        return values | {"groups": groups}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Report:
        """Return the report of ``as_json``."""
        names = [name for name in ("on", "off", "killed") if values[name] is not None]
        runs = {name: RunRecord.from_json(values[name]) for name in names}
        proofs = {of: tuple(Proof(**p) for p in found) for of, found in values["proofs"].items()}
        groups = {of: GroupProof(**proof) for of, proof in values["groups"].items()}
        life = values.get("life")
        logs = {of: LogRecord(**record) for of, record in values.get("logs", {}).items()}
        found = {"life": life and FileLife.from_json(life), "proofs": proofs, "groups": groups}
        found["logs"] = logs
        return cls(**dict(values) | runs | found)


def _word(run: RunRecord) -> str:
    return "on" if run.service else "off"
