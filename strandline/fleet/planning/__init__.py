"""Which tables should move between groups of servers, and what other numbers of either would do.

Pure: ``load`` reads servers' statuses that others have asked for.
"""
