"""The files of a partition as packed bytes: a row a file, rows in chunks, changes behind them.

Whatever a service holds by the million belongs here, as plain functions over immutable bytes that
versions share. Which files are visible at an instant is not decided here, but in
``fsview.snapshot`` and ``fsview.query``.
"""
