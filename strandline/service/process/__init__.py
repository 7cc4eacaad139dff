"""A service as a process or a thread: put together, started, owned by a driver, ended.

What crosses to a child process belongs here. No request is seen here.
"""
