"""A table's history: instants, their metadata, table properties, storage."""
