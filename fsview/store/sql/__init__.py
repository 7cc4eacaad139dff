"""A table's chunks in an SQL database that several servers share.

``SharedStore`` decides what a commit is; a ``Database`` keeps it. Only one module imports the
driver of a kind of database.
"""
