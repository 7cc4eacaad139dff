"""The dispatcher of a service, the rows of its route table, and their handlers.

A route enters as a row with a handler of a few lines: a ``Request`` in, a ``Reply`` out. The logic
of views and markers never does; Flask is used by the pages alone.
"""
