"""The timeline server: HTTP, routes, look-ups, markers, and the processes that run it."""
