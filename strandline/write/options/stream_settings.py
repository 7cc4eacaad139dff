"""The settings of the stream sink (``strandline.stream``), by the names of Hudi's sink.

Source: Hudi 1.2.0 ``DataSourceWriteOptions``, ``HoodieStreamingSink``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from strandline.commit.lock.settings import PROVIDER
from strandline.settings.setting import ClientSetting, Settings, refusal, seconds, settings_of
from strandline.table_services.compact.policy import ASYNC, INLINE, SCHEDULE_INLINE
from strandline.write.operation import DELETE_PARTITION
from strandline.write.options.settings import OPERATION
from timeline.errors import ConfigError

IDENTIFIER: Final = ClientSetting(
    "hoodie.datasource.write.streaming.checkpoint.identifier",
    "default_single_writer",
    "Identifies a stream in the commits of a table: each streaming query that writes the table has"
    " its own.",
)
RETRIES: Final = ClientSetting(
    "hoodie.datasource.write.streaming.retry.count",
    3,
    "Most attempts to write a micro-batch; after the last one the query ends with the error.",
    minimum=1,
)
RETRY_MS: Final = ClientSetting(
    "hoodie.datasource.write.streaming.retry.interval.ms",
    2000,
    "Pause before the second attempt to write a micro-batch; it doubles with each attempt.",
    unit="ms",
    minimum=0,
)
IGNORE_FAILED: Final = ClientSetting(
    "hoodie.datasource.write.streaming.ignore.failed.batch",
    False,
    "Whether a query goes on without the rows of a micro-batch that can't be written.",
    allowed=("false",),
)
DISABLE_COMPACTION: Final = ClientSetting(
    "hoodie.datasource.write.streaming.disable.compaction",
    False,
    "Whether a stream leaves the compactions of its table to another job.",
)


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Values of the stream sink's settings.

    Attributes:
        identifier: Identifies the stream in the table's commits.
        attempts: Most attempts to write a micro-batch, at least 1.
        pause_s: Pause before the second one.
        compacts_beside: Whether batches plan compactions, which then run beside them.
        has_lock: Whether the options name a lock provider.
    """

    identifier: str = IDENTIFIER.field()
    attempts: int = RETRIES.field()
    pause_s: float = RETRY_MS.field(seconds)
    compacts_beside: bool = True
    has_lock: bool = False

    @classmethod
    def of(cls, options: Mapping[str, object]) -> StreamSettings:
        """Return the stream sink's part of options, which ``parse_options`` has accepted.

        Compactions run beside the stream unless an option has them run inline, only planned, or
        left to another job, as in Hudi.

        Raises:
            ConfigError: The identifier is empty, the operation has no rows, or compactions are both
                inline and left to another job.
        """
        others = (OPERATION, INLINE, SCHEDULE_INLINE, ASYNC, DISABLE_COMPACTION, PROVIDER)
        values = Settings.parse(options, (*settings_of(cls), *others))
        identifier = values.get(IDENTIFIER)
        if not identifier:
            raise refusal(IDENTIFIER.name, "''", "; allowed: any other text")
        operation = values.get(OPERATION)
        if operation.upper() == DELETE_PARTITION.name:
            raise ConfigError(
                f"{OPERATION.name} is {operation}, which takes no rows; allowed in a stream:"
                " upsert, insert, bulk_insert, delete, insert_overwrite, insert_overwrite_table"
            )
        is_inline = values.get(INLINE) or values.get(SCHEDULE_INLINE)
        is_disabled = values.get(DISABLE_COMPACTION)
        if is_disabled and is_inline:
            inline = next(each.name for each in (INLINE, SCHEDULE_INLINE) if values.get(each))
            raise ConfigError(
                f"{DISABLE_COMPACTION.name} is true, and {inline} is true; allowed: one of them, as"
                " the first leaves compactions to another job"
            )
        is_left = is_disabled or not values.get(ASYNC)
        return values.read(
            cls,
            compacts_beside=not (is_inline or is_left),
            has_lock=bool(values.get(PROVIDER)),
        )
