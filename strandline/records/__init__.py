"""Storage of rows, for readers and the writer: schemas, meta columns, base files, Bloom filters.

Code that defines how a row is stored belongs here. It begins no instant and knows no engine.
"""
