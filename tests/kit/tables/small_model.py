"""A naive model of what readers must see of a ``SmallTable``."""

from __future__ import annotations

from dataclasses import dataclass, field

from timeline.instant import Instant

Group = tuple[str, str]
"""(partition, file id)"""
Shown = dict[str, tuple[str, int]]
"""File id → (file name, size)."""
EVER = "~"
"""Later than every time."""


@dataclass(frozen=True)
class DataFile:
    """One base file."""

    partition: str
    file_id: str
    instant: str
    name: str
    size: int

    @property
    def path(self) -> str:
        return f"{self.partition}/{self.name}" if self.partition else self.name

    @property
    def group(self) -> Group:
        return self.partition, self.file_id


@dataclass
class Write:
    """A write: instant, files, leftovers of failed tasks, groups that it replaces."""

    instant: Instant
    files: list[DataFile]
    leftovers: list[str]
    replaces: list[Group]

    @property
    def groups(self) -> list[Group]:
        return [file.group for file in self.files]

    @property
    def paths(self) -> set[str]:
        return {file.path for file in self.files}


@dataclass
class Model:
    """What readers must see now.

    Attributes:
        files: Path → file of a committed write that no clean deleted.
        committed: Requested time → committed write.
        saved: Time of a savepoint → paths that it protects.
    """

    files: dict[str, DataFile] = field(default_factory=dict)
    committed: dict[str, Write] = field(default_factory=dict)
    saved: dict[str, set[str]] = field(default_factory=dict)

    @property
    def writes(self) -> list[str]:
        """The requested times of the committed writes, oldest first."""
        return sorted(self.committed)

    def replaced(self) -> dict[Group, str]:
        """Return group → time of its replacement."""
        found: dict[Group, str] = {}
        for time in self.writes:
            found.update(dict.fromkeys(self.committed[time].replaces, time))
        return found

    def groups(self) -> dict[Group, list[DataFile]]:
        """Return the committed files of each group, newest first."""
        found: dict[Group, list[DataFile]] = {}
        for file in sorted(self.files.values(), key=lambda file: file.instant, reverse=True):
            if file.instant in self.committed:
                found.setdefault(file.group, []).append(file)
        return found

    def versions(self, partition: str) -> dict[str, list[DataFile]]:
        """Return the committed files of each group of a partition, newest first."""
        return {group[1]: files for group, files in self.groups().items() if group[0] == partition}

    def newest(self, as_of: str = EVER) -> dict[Group, DataFile]:
        """Return each live group's newest file, as of a time or now."""
        gone = self.replaced()
        found = {}
        for group, files in self.groups().items():
            old_enough = [file for file in files if file.instant <= as_of]
            if old_enough and not gone.get(group, EVER + EVER) <= as_of:
                found[group] = old_enough[0]
        return found

    def latest(self, partition: str, as_of: str = EVER) -> Shown:
        """Return each live group's newest file in a partition, as of a time or now."""
        return {
            file.file_id: (file.name, file.size)
            for file in self.newest(as_of).values()
            if file.partition == partition
        }

    def read_at(self, time: str) -> set[str]:
        """Return the paths that a reader at ``time`` reads."""
        return {file.path for file in self.newest(time).values()}

    def all_names(self, partition: str) -> list[str]:
        """Return every committed file of the live groups, by group, newest first."""
        live, gone = self.versions(partition), self.replaced()
        return [f.name for key in sorted(live) if (partition, key) not in gone for f in live[key]]

    def to_keep(self, earliest: str) -> set[str]:
        """Return the files that a full clean back to ``earliest`` leaves."""
        keep = set().union(*self.saved.values())
        gone = self.replaced()
        for group, files in self.groups().items():
            if gone.get(group, EVER) >= earliest:
                keep.update(file.path for file in files if file.instant >= earliest)
                keep.update([file.path for file in files if file.instant < earliest][:1])
        return keep

    def to_keep_versions(self, number: int) -> set[str]:
        """Return the files that a full clean leaves which keeps so many versions of each group."""
        keep = set().union(*self.saved.values())
        gone = self.replaced()
        for group, files in self.groups().items():
            if group not in gone:
                keep.update(file.path for file in files[:number])
        return keep

    def held_versions(self, earliest: str, until: str, *, oldest: str) -> set[str]:
        """Return the files that a lease holds where the policy keeps versions.

        Args:
            earliest: From what its reader reads then.
            until: To what it reads then.
            oldest: The first ``earliest`` of all leases; groups replaced by then are gone.
        """
        keep: set[str] = set()
        gone = self.replaced()
        for group, files in self.groups().items():
            if gone.get(group, EVER) > oldest:
                keep.update(file.path for file in files if earliest < file.instant <= until)
                keep.update([file.path for file in files if file.instant <= earliest][:1])
        return keep

    def may_stay(self, earliest: str) -> set[str]:
        """Return the files of groups replaced since ``earliest``, which cleans don't delete."""
        gone = self.replaced()
        return {f.path for f in self.files.values() if gone.get(f.group, "") >= earliest}
