"""How tables move to other servers: a move's states, records fetched before, tables closed after.

``warming`` also fetches the records of the tables that a server's own seat brings, when it joins.
"""
