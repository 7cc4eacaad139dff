"""HTTP from the socket to the reply: connections, requests, limits, admission, TLS.

What a client can make the service hold is bounded here. Handlers, views and Flask never enter; of
routes only the paths of probes are known, and which parameter of a path names its table.
"""
