"""All settings of the service and its command: what each may be, and where its value comes from.

A setting enters as one row, and as a flag if ``strandline serve`` has one. Nobody below reads the
environment.
"""
