"""Reading rows: file slices with their logs merged in, and scans of tables made of them.

``slice_reader`` gives the rows of a slice as a stream of record batches, with its ``logs`` merged
in, whose ``avro`` is decoded by columns. What decides which rows are kept is
``strandline.records.merge_rule``, as in the writer. ``scan`` reads the slices of a table, which
``state`` finds for one time by its ``instants``, and drops rows by a ``filter``.
"""
