"""Chunks and rows in RocksDB, from which a restart goes on.

What works around RocksDB and its binding belongs here; ``engine`` and ``database`` alone import it.
No meaning of a row enters.
"""
