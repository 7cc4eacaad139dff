"""A table at one instant, as values: the snapshot, what an instant changed, the history.

Everything that turns one snapshot into another belongs here, as pure functions of metadata that was
read before. Nothing here calls a storage.
"""
