"""Which instants may be rolled back: pending ones whose writer is dead, judged by its heartbeat.

Strandline's writers always have heartbeats, Hudi's only if failed writes are cleaned lazily. So the
writer of an instant without a heartbeat may be alive or dead, unless all writers have one.

Source: Hudi 1.2.0 ``BaseHoodieTableServiceClient.getInstantsToRollback``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from strandline.commit.others_heartbeats import Beat, HeartbeatSettings, is_expired
from strandline.settings.setting import ClientSetting, Settings

FAILED_WRITES: Final = ClientSetting(
    "hoodie.clean.failed.writes.policy",
    "EAGER",
    "When failed writes are rolled back: EAGER, by the next write; LAZY, by the clean, which tables"
    " with several writers need.",
    allowed=("EAGER", "LAZY"),
)
FOREIGN: Final = ClientSetting(
    "strandline.write.rollback.foreign",
    False,
    "Whether to roll back a pending write without a heartbeat, which a writer of Hudi without a"
    " lock provider left or is still writing. Set it only while no other writer runs.",
)


class Verdict(Enum):
    """What is known about the writer of a pending instant."""

    DEAD = "dead"
    ALIVE = "alive"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RollbackPolicy:
    """Values of the settings of rollbacks.

    Attributes:
        lazy: Whether failed writes are rolled back by the clean only.
        foreign: Whether writers without a heartbeat count as dead.
        heartbeats: When a beat has expired.
    """

    lazy: bool = FAILED_WRITES.field(lambda policy: policy == "LAZY")
    foreign: bool = FOREIGN.field()
    heartbeats: HeartbeatSettings = field(default_factory=HeartbeatSettings)

    @classmethod
    def of(cls, values: Settings) -> RollbackPolicy:
        """Return the rollbacks' part of parsed options."""
        return values.read(cls, heartbeats=values.read(HeartbeatSettings))

    def judge(self, beat: Beat | None, now_ms: int, *, is_gone: bool, all_beat: bool) -> Verdict:
        """Return whether a pending instant's writer is dead.

        Args:
            beat: Its last beat, if any.
            now_ms: The time.
            is_gone: Whether its process is known to have ended or given up.
            all_beat: Whether a lock provider is set; then Hudi's writers have heartbeats as well.
        """
        if beat is None:
            is_dead = self.foreign or self.lazy or all_beat
            return Verdict.DEAD if is_dead else Verdict.UNKNOWN
        is_dead = is_gone or is_expired(beat, now_ms, self.heartbeats)
        return Verdict.DEAD if is_dead else Verdict.ALIVE
