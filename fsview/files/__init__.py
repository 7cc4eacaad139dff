"""The files of a partition as packed bytes: a row a file, rows in chunks, changes behind them.

Whatever is held by the million belongs here, in immutable bytes that versions share. It enters as
plain functions over bytes. No instant is judged here: which file counts, ``fsview.snapshot`` and
``fsview.query`` say.
"""
