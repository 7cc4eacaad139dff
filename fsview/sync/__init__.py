"""Keeping one table's history in step with its timeline, and with what its store recorded.

What reads the timeline, the archive, plans or the record to learn what happened belongs here. It
never lists a partition: ``fsview.load`` does.
"""
