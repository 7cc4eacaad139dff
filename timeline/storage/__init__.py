"""The one door to file systems: ``Storage``, local and by fsspec, and what identifies a table.

Every call goes through here, counted by kind and cause and bounded by kind of file. What lies in a
file is never looked at.
"""
