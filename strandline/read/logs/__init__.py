"""A slice's logs: visible blocks, their rows, the newest record of each key; within a budget."""
