"""The settings of the service and its command: their allowed values, and where values come from.

A new setting is one row, plus a flag if ``strandline serve`` takes it. Code that acts on a setting
doesn't belong here. Packages below this one never read the environment.
"""
