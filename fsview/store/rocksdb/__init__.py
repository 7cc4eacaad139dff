"""Chunks and rows in RocksDB, from which a restarted service resumes.

Workarounds for RocksDB and its binding rocksdict belong here; only ``engine`` and ``database`` use
them. What a row means is not known here.
"""
