"""The command line: ``strandline serve`` and ``strandline fleet``.

A module has the commands of one noun, which call the public API.
"""
