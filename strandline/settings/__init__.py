"""The settings of the service and its command: their allowed values, and the sources of values.

A new setting is one row, plus a flag if ``strandline serve`` has it. Code that acts on a setting
doesn't belong here. Packages below this one never read the environment.
"""
