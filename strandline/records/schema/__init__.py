"""Schemas of tables and rows: Avro and Arrow, casts, and what a write may change.

``avro_schema`` converts between the two forms; ``schema_evolution`` deduces the schema after a
write, by the rules of ``type_change`` and ``new_column``; ``columns`` casts rows to it. Pure
functions of schemas and batches; nothing here reads storage.
"""
