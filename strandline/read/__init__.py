"""Reading rows: file slices with their logs merged in, and scans of tables.

``slice_reader`` returns the rows of a slice as a stream of record batches, merged with the records
of its ``logs``, whose ``avro`` is decoded by columns. ``strandline.records.merge_rule`` decides
which rows are kept, as in the writer. ``scan`` reads the slices of a table, which ``state`` finds
for one time by its ``instants``, and drops rows by a ``filter``.
"""
