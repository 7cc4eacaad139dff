"""The questions that a view answers about one partition, as pure functions of a snapshot.

A new question enters as a function and a row of ``QUERIES``. Nothing here loads, locks or does I/O:
who asks brings what was loaded.
"""
