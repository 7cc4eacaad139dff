"""Comparing what was followed with what lies on storage.

What reads everything anew to find a difference belongs here, off the path of any request. It
changes nothing but by syncing.
"""
