"""The settings of the service and its command: their allowed values, and where values come from.

A new setting is one row, plus a flag if ``strandline serve`` takes it. What doesn't belong here is
the code that acts on a setting. Packages below this one never read the environment.
"""
