"""Encodings: Avro, JSON (also in parts), HFile, blocks of log files, Java's properties text.

Every reader bounds the memory that its input may expand to. Nothing here knows of tables, instants
or storages.
"""
