"""What happened to a table: instants, their metadata, table properties, storage."""
