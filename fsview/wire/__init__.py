"""The JSON form of a view's answers, both ways, and the one table of routes.

What Hudi's server and its clients say to each other belongs here, for the service and the proxy
alike. No HTTP is spoken here.
"""
