"""The writer of copy-on-write tables: insert, upsert, bulk-insert, delete.

A write is a few transforms of rows, which an engine's tasks run, and decisions that the driver
makes between them. The modules of this folder run in the driver: the client, the steps of a write
(``job``), and the state that the writes of a client share (``context``). Below them lie the indexes
(``index``), the tasks and the plan of files (``tasks``), the engines (``engine``) and the options
(``options``). How rows are stored belongs to ``strandline.records``, how a write changes the
timeline to ``strandline.commit``.
"""
