"""The routes of a service, and what answers them.

A route enters as a row and a handler of a few lines: parameters in, a reply out. No logic of views
or markers stands here.
"""
