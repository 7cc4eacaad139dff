"""Answers about views: computed, or cached as ready bytes; and the check that they are right.

Code that turns a request's parameters into the bytes of an answer belongs here. It reads storage
only through the views.
"""
