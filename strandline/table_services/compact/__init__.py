"""Compaction of merge-on-read tables: which file groups, when, and on which instant.

Source: Hudi 1.2.0 ``org.apache.hudi.table.action.compact``.
"""
