"""Filters: which rows are wanted, and which partitions may have some."""
