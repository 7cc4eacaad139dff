"""Stores of a table's packed chunks: in memory, spilled to a file, in RocksDB or in SQL.

A store keeps blobs by handle and rows by name, within a budget. What these mean is not known here:
nothing in this room knows of timelines, data files or queries.
"""
