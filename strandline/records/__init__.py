"""Rows, for readers and the writer: schemas, keys, the merge rule, base files, Bloom filters.

Code that defines how a row is keyed, merged or stored belongs here. It begins no instant and knows
no engine.
"""
