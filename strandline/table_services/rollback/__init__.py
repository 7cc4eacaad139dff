"""Rollbacks: undo failed writes, and on request the newest completed commit.

The plan (pure), its execution, the resumption of dead writers' rollbacks, the decision which writes
may be rolled back, and the sweeps belong here; the writers' heartbeats don't.
"""
