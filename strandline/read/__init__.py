"""Reading file slices: a base file with the rows of its logs merged in.

``slice_reader`` gives the rows of a slice as a stream of record batches. What decides which rows
are kept is ``strandline.records.merge_rule``, as in the writer.
"""
