"""A table's state that a scan reads, pinned at one time or over a range of commits."""
