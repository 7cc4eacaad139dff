"""What is wrong with a table, and the part of it that can be put right safely.

A check is a pure function over a picture of the table, or over one partition's listing; it yields
findings. Nothing here opens a data file except the checks of contents: the last block of logs, and
on request base files. Repairs go through the table's lock and look at each file again.
"""
