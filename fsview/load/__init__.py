"""Finding the files of partitions when they are first asked for, from the cheapest sound source.

A source of files enters here: a listing, the table's commits, its metadata table. What an instant
did to files is never decided here: ``fsview.snapshot`` says.
"""
