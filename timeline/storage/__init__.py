"""Access to file systems: ``Storage``, local and by fsspec, and the identity of a table.

Every storage call goes through here, counted by kind and cause and bounded by kind of file. Nothing
here interprets a file's content.
"""
