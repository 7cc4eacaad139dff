"""The state of a table that a scan reads, pinned at one time or over a range of commits."""
