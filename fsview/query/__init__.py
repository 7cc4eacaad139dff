"""The queries that a view answers about one partition, as pure functions of a snapshot.

A new query is a function and a row of ``QUERIES``. Nothing here loads, locks or does I/O: callers
pass the partitions that they loaded.
"""
