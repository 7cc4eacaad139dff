"""Several servers that answer as one: the state they share, and which server holds which seat.

Decisions are pure functions; shared state lies in a ``StateStore``. ``executor_proxy.seat_ring``,
which clients use as well, decides which seats have a table.
"""
