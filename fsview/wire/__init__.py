"""The JSON form of a view's answers, both ways, and the one table of routes.

The requests and answers of Hudi's server and its clients are defined here, for the service and the
proxy. Nothing here does HTTP.
"""
