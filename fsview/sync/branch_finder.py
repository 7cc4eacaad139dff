"""``BranchFinder``: answers clients whose timeline was never held, from what happened since.

The timeline is searched for by its hash (``fsview.snapshot.hash_search``), the steps from there to
a snapshot that is kept are read (``fsview.sync.branch_reader``), and both are kept as a branch.
"""

from __future__ import annotations

from fsview.single_flight import Shared
from fsview.snapshot.hash_search import Questions
from fsview.snapshot.history_link import Branch
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import key_of
from fsview.state.current_history import Use
from fsview.sync.branch_reader import read_branch, shared_branch
from fsview.sync.follower import TimelineFollower
from timeline.errors import InstantNotFoundError
from timeline.timeline import Timeline


class BranchFinder:
    """Finds branches of one table; callers with the same question share one run, and the use."""

    def __init__(self, follower: TimelineFollower) -> None:
        self._follower = follower
        self._state = follower.state
        self._runs: Shared[Use | None] = Shared()
        self._questions = Questions()

    def find(self, last_instant: str, timeline_hash: str) -> Use | None:
        """Return a use of the snapshot of a timeline; ``None`` where it can't be known.

        Args:
            last_instant: Requested time of the timeline's last instant.
            timeline_hash: Its hash.
        """
        key = last_instant, timeline_hash
        return self._runs.run(key, lambda: self._find(last_instant, timeline_hash))

    def _find(self, last_instant: str, timeline_hash: str) -> Use | None:
        known = self._state.use(lambda history: history.snapshot_for(last_instant, timeline_hash))
        if known is not None:
            return known  # since this caller looked, another has found it
        history = self._state.history
        question = self._questions.of(last_instant, timeline_hash)
        if question.is_refused(history.newest):
            return None
        before = question.hashes
        found = question.find(history.open_snapshots)
        self._follower.count("timelines_tried", question.hashes - before)
        if found is not None and self._is_of_this_version(found[1]):
            # In use while the steps are read, as a sync may drop the snapshot that they lead to.
            with self._state.using(found[0]):
                branch = self._branch(*found)
                if branch is not None:
                    return self._state.branch_off(branch)
        # For the history that was searched: one that came meanwhile may have the answer.
        question.refuse(history.newest)
        return None

    def _is_of_this_version(self, timeline: Timeline) -> bool:
        """Whether a timeline has an instant from after the last upgrade that was seen.

        An upgrade may change the meaning of instants before it, so they are not searched.
        """
        outdated = self._state.outdated
        return any(key_of(instant) not in outdated for instant in timeline.completed())

    def _branch(self, onto: Snapshot, timeline: Timeline) -> Branch | None:
        """Return the way from a timeline to a snapshot; ``None`` where it can't be known."""
        client = self._follower.client_for("past")
        shared = shared_branch(client, self._state.history.branches, timeline)
        try:
            branch = shared or read_branch(client, onto, timeline)
        except InstantNotFoundError:  # archived or undone since: nothing says any more what it did
            branch = None
        read = "refused" if branch is None else "read"
        self._follower.count("branches", outcome=read if shared is None else "shared")
        return branch
