"""Forms of bytes: Avro, JSON in parts, HFile, blocks of logs, Java's properties text.

A reader enters with a bound for what it decodes to. Nothing here knows a table, an instant or a
storage.
"""
