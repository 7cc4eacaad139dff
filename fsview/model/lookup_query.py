"""``LookupQuery``: one query of many partitions, or of many file groups of one partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from timeline.errors import InputError

OF_PARTITIONS: Final = frozenset(
    {
        "latest_base_files",
        "latest_base_files_before_or_on",
        "latest_file_slices",
        "latest_merged_file_slices_before_or_on",
    }
)
"""Methods of a view that such a query may ask of partitions."""
OF_FILE_IDS: Final = frozenset({"latest_base_file", "latest_file_slice"})
"""Methods that it may ask of file groups."""
WITH_INSTANT: Final = frozenset(
    {"latest_base_files_before_or_on", "latest_merged_file_slices_before_or_on"}
)
"""Methods with a ``max_instant``."""


@dataclass(frozen=True, slots=True)
class LookupQuery:
    """One method of a view, asked of many partitions or of many file groups of one.

    Attributes:
        name: The method: of ``OF_PARTITIONS`` or ``OF_FILE_IDS``.
        partitions: The partitions; with ``file_ids`` exactly one.
        file_ids: The file groups, for a method of ``OF_FILE_IDS``.
        max_instant: For a method of ``WITH_INSTANT``.
    """

    name: str
    partitions: tuple[str, ...]
    file_ids: tuple[str, ...] = ()
    max_instant: str | None = None

    def __post_init__(self) -> None:
        if self.name not in OF_PARTITIONS | OF_FILE_IDS:
            allowed = ", ".join(sorted(OF_PARTITIONS | OF_FILE_IDS))
            raise InputError(f"query={self.name[:200]!r} is no look-up; allowed: {allowed}")
        if (self.max_instant is not None) != (self.name in WITH_INSTANT):
            verb = "needs" if self.name in WITH_INSTANT else "takes no"
            raise InputError(f"{self.name} {verb} max_instant, which is {self.max_instant!r}")
        if self.is_of_groups and len(self.partitions) != 1:
            raise InputError(f"{self.name} is asked of one partition, not {len(self.partitions)}")
        if self.file_ids and not self.is_of_groups:
            raise InputError(f"{self.name} takes no file_ids, of which there are some")

    @property
    def is_of_groups(self) -> bool:
        """Whether it is asked of file groups; else of partitions."""
        return self.name in OF_FILE_IDS

    def arguments(self) -> Iterator[dict[str, Any]]:
        """Yield the method's arguments for each partition or file group, in order."""
        if self.is_of_groups:
            for file_id in self.file_ids:
                yield {"partition": self.partitions[0], "file_id": file_id}
        for partition in () if self.is_of_groups else self.partitions:
            if self.max_instant is None:
                yield {"partition": partition}
            else:
                yield {"partition": partition, "max_instant": self.max_instant}

    def without_repeats(self) -> LookupQuery:
        """Return the query with each partition and file group once, in order."""
        return replace(
            self,
            partitions=tuple(dict.fromkeys(self.partitions)),
            file_ids=tuple(dict.fromkeys(self.file_ids)),
        )

    @property
    def parts(self) -> int:
        """The number of parts of its answer: one for each partition."""
        return len(self.partitions)

    @property
    def answers(self) -> int:
        """The number of answers: one for each partition or file group."""
        return len(self.file_ids) if self.is_of_groups else len(self.partitions)
