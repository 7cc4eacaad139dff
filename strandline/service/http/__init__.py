"""HTTP from the socket to the reply: connections, requests, limits, who may ask, TLS.

What a client can make the service hold is bounded here. No route and no table is known here.
"""
