"""Filters: the condition on rows, and the partitions that may have matching rows."""
