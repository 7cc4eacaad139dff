"""Several servers that answer as one: the state they share, and who has which seat.

Decisions are functions of values here; what is shared lies in a ``StateStore``. Where a table's
seats are is decided by ``executor_proxy.seat_ring``, which clients use as well.
"""
