"""Table services: work on a table that changes no row, such as clean and rollback.

Each has a plan (a pure function), an execution, and a way to finish it after a crash.
"""
