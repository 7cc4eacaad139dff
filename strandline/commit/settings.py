"""Settings of commits: concurrency, clock skew and conflict resolution.

Names and defaults are Hudi's.

Source: Hudi 1.2.0 ``HoodieTimeGeneratorConfig``, ``HoodieLockConfig``.
"""

from __future__ import annotations

from typing import Final

from strandline.commit.conflict import (
    BUCKET_INDEX,
    PREFER_WRITER,
    SIMPLE,
    STRATEGIES,
    ConflictStrategy,
)
from strandline.commit.lock import settings as lock_settings
from strandline.settings import service as service_settings
from strandline.settings.setting import ClientSetting, Refusals, Settings
from timeline.errors import ConfigError

OPTIMISTIC: Final = "OPTIMISTIC_CONCURRENCY_CONTROL"
EARLY_STRATEGIES: Final = (
    "org.apache.hudi.table.marker.SimpleDirectMarkerBasedDetectionStrategy",
    "org.apache.hudi.table.marker.SimpleTransactionDirectMarkerBasedDetectionStrategy",
    "org.apache.hudi.timeline.service.handlers.marker.AsyncTimelineServerBasedDetectionStrategy",
)
"""Hudi's classes that detect early conflicts."""

CONCURRENCY: Final = ClientSetting(
    "hoodie.write.concurrency.mode",
    "SINGLE_WRITER",
    "How many writers a table may have at a time; several need a lock provider. Commits are"
    " compared with other writers' in both modes.",
    allowed=("SINGLE_WRITER", OPTIMISTIC),
)
CLOCK_SKEW: Final = ClientSetting(
    "hoodie.time.generator.max_expected_clock_skew_ms",
    200,
    "How far the clocks of a table's writers may be apart. An instant's time is used only after"
    " this time has passed, under the lock; without a lock that processes share, at once.",
    minimum=0,
    maximum=60_000,
)
TIME_GENERATOR: Final = ClientSetting(
    "hoodie.time.generator.type",
    "WAIT_TO_ADJUST_SKEW",
    "How instants' times are made; Hudi has one way.",
    allowed=("WAIT_TO_ADJUST_SKEW",),
)
CONFLICT_STRATEGY: Final = ClientSetting(
    "hoodie.write.lock.conflict.resolution.strategy",
    SIMPLE.class_name,
    "Which instants conflict with a commit: those that changed the same file group; with"
    " `PreferWriterConflictResolutionStrategy` of the same package only completed ones. With a"
    " bucket index: those that changed the same bucket.",
)
EARLY_STRATEGY: Final = ClientSetting(
    "hoodie.write.concurrency.early.conflict.detection.strategy",
    "",
    "Which of Hudi's classes says how early conflicts are detected. Each kind of markers has one"
    " way here, so the name of a class of Hudi's changes nothing; other classes are refused.",
)


def check_concurrency(values: Settings) -> None:
    """Check that several writers have a lock, and that early conflicts are detected as in Hudi.

    Raises:
        ConfigError: A lock provider is missing, or a class that detects conflicts isn't Hudi's.
    """
    refusals = Refusals()
    if values.get(CONCURRENCY) == OPTIMISTIC and not values.get(lock_settings.PROVIDER):
        error = ConfigError(
            f"{CONCURRENCY.name} is {OPTIMISTIC}, and {lock_settings.PROVIDER.name} is empty;"
            " allowed: a lock provider, the same for all writers of the table"
        )
        refusals.add(error)
    strategy = values.get(EARLY_STRATEGY)
    if strategy and strategy not in EARLY_STRATEGIES:
        shorts = ", ".join(name.rpartition(".")[2] for name in EARLY_STRATEGIES)
        refusals.add(ConfigError(f"{EARLY_STRATEGY.name}={strategy}; allowed: {shorts}"))
    refusals.raise_any()


def detects_early(values: Settings) -> bool:
    """Return whether writes detect conflicts early; as in Hudi, not for a single writer."""
    return values.get(CONCURRENCY) == OPTIMISTIC and values.get(service_settings.EARLY_CONFLICTS)


def conflict_strategy(values: Settings, *, by_bucket: bool = False) -> ConflictStrategy:
    """Return the conflict strategy that the settings name.

    Args:
        values: The settings.
        by_bucket: Whether the table has a bucket index, whose strategy is then Hudi's default.

    Raises:
        ConfigError: It isn't one of Hudi's, or needs a bucket index.
    """
    if by_bucket and not values.is_set(CONFLICT_STRATEGY):
        return BUCKET_INDEX
    named = values.get(CONFLICT_STRATEGY)
    strategies = STRATEGIES.values() if by_bucket else (SIMPLE, PREFER_WRITER)
    allowed = {each.class_name: each for each in strategies}
    if named in allowed:
        return allowed[named]
    shorts = ", ".join(name.rpartition(".")[2] for name in allowed)
    reason = " needs a bucket index" if named in STRATEGIES else ""
    raise ConfigError(f"{CONFLICT_STRATEGY.name}={named}{reason}; allowed: {shorts}")
