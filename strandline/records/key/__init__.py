"""Record keys and partition paths, made from columns as Hudi's key generators make them.

``generator`` is the entry; ``text`` and ``timestamp_path`` give the text of values, ``hashes`` the
numbers by which rows are compared and distributed. Nothing here reads storage.
"""
