"""HTTP from the socket to the reply: connections, requests, limits, admission, TLS.

The resources that a client can make the service hold are bounded here. This package doesn't use
handlers, views or Flask; of the routes it knows only the paths of probes, and which parameter of a
path names its table.
"""
