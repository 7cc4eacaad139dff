"""Comparing the state of a table with storage.

Code that reads everything again to find a difference belongs here; no request waits for it. It
changes nothing, but may sync.
"""
