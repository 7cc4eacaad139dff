"""How early conflicts are detected: plain values, sent to a child process as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.settings import service as config
from strandline.settings.setting import Settings


@dataclass(frozen=True, slots=True)
class ConflictOptions:
    """How early conflicts of writers are detected, see ``strandline.service.marker.conflict``.

    Attributes:
        enabled: Whether they are, for writers that ask for it.
        checks_commits: Whether commits that completed meanwhile count.
        initial_delay_s: From the first marker of a write to its first check.
        period_s: From one check to the next.
        max_heartbeat_age_s: Writers with older heartbeats count as dead.
    """

    enabled: bool = False
    checks_commits: bool = False
    initial_delay_s: float = 0.0
    period_s: float = 30.0
    max_heartbeat_age_s: float = 120.0

    @classmethod
    def of(cls, settings: Settings) -> ConflictOptions:
        """Return the options from settings."""
        misses = settings.get(config.HEARTBEAT_MISSES)
        return cls(
            enabled=settings.get(config.EARLY_CONFLICTS),
            checks_commits=settings.get(config.EARLY_COMMIT_CONFLICTS),
            initial_delay_s=settings.get(config.EARLY_CONFLICTS_DELAY) / 1000,
            period_s=settings.get(config.EARLY_CONFLICTS_PERIOD) / 1000,
            max_heartbeat_age_s=settings.get(config.HEARTBEAT_INTERVAL) * misses / 1000,
        )
