"""Rollbacks: what undoes failed writes, and the newest completed commit on request.

A plan (pure), its execution, the resumption of rollbacks whose writer died, the decision which
writes may be rolled back, and the sweeps belong here. How writers show that they are alive doesn't.
"""
