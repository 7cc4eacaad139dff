"""The tasks of a write, the columns that they add to rows, and the plan of the files.

Rows are keyed and counted (``key_task``), assigned to file groups (``placement``: by counts, then
row by row) and written (``write_task``). Tasks pickle and hold no engine or session. Stored keys
are found by ``strandline.write.index``.
"""
