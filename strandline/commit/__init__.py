"""Commits: how a write, table service or repair changes the timeline alongside other writers.

The transaction and its steps, markers, heartbeats, locks and conflicts belong here; the content of
a write and the merging of rows don't.
"""
