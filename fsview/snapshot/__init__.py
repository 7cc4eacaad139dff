"""A table at one instant, as values: the snapshot, what an instant did to it, its history.

What turns one snapshot into another belongs here, as pure functions of what was read. Nothing here
calls a storage or takes a lock.
"""
