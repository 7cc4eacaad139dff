"""What readers and the writer share about rows: schemas, meta columns, base files, Bloom filters.

What says how a row is stored belongs here. No instant is begun and no engine is known here.
"""
