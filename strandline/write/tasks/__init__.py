"""The tasks of a write, the columns that they add to rows, and the plan of the files.

Rows are keyed and counted (``key_task``), assigned to buckets (``assign_task``) and written
(``write_task``). ``placement`` decides from counts which file group takes which rows. Tasks pickle
and hold no engine or session. Stored keys are found by ``strandline.write.index``.
"""
