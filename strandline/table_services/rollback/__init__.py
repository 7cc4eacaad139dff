"""Rollbacks: undo failed writes, and on request the newest completed commit.

A plan (pure), its execution, the resumption of rollbacks whose writer died, the decision which
writes may be rolled back, and the sweeps belong here; the writers' heartbeats don't.
"""
