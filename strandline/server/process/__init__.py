"""A service as a process or a thread: assembled, started, owned by a driver, stopped.

Code that assembles a service from its parts, or passes data to a child process, belongs here.
Requests are never handled here.
"""
