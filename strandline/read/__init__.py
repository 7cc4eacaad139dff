"""Reading rows: file slices with their logs merged in, and scans of tables.

``pinned_rows`` returns the rows of a slice as a stream of record batches, merged with the records
of its ``logs``, whose ``avro`` is decoded by columns. ``strandline.records.merge_rule`` decides
which rows are kept, as in the writer. ``scan`` reads the slices of a table and drops rows by a
``filter``; ``state`` finds the slices at one time by the table's ``instants``.
"""
