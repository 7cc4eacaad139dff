"""Where a table's packed chunks lie: in memory, spilled to a file, or in RocksDB.

A store keeps blobs by handle and rows by name, within a budget. It never knows what they mean: no
timeline, no file and no query enters here.
"""
