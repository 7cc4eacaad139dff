"""Where a table's packed chunks lie: in memory, spilled to a file, or in RocksDB."""
