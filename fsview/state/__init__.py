"""The state of one table: its history, which requests are answered from, and its record in a store.

What must change together, under one lock, belongs here, as verbs of ``TableState``. Nothing here
calls a table's storage: ``fsview.sync`` and ``fsview.load`` read, and hand in what they read.
"""
