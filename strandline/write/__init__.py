"""The writer of copy-on-write tables: insert, upsert, bulk-insert, delete.

A write is a few transforms of rows that tasks of an engine run, and decisions that the driver makes
between them. Only ``spark`` imports pyspark. How rows are stored belongs to ``strandline.records``,
how a write changes the timeline to ``strandline.commit``.
"""
