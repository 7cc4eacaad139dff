"""Comparing the state of a table with storage.

What reads everything anew to find a difference belongs here, off the path of any request. It
changes nothing, but may sync.
"""
