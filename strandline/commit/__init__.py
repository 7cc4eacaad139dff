"""Commits: how one write, table service or repair changes the timeline beside other writers.

The transaction and its steps, markers, heartbeats, locks and conflicts belong here. What is written
and how rows are merged doesn't.
"""
