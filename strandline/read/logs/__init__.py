"""A slice's logs: which blocks count, their rows, the newest of each key, within a budget."""
