"""Instants that were moved out of the active timeline: of versions from 8 on, and of version 6.

Readers only, which give what the active timeline would. Nothing here is needed for what a table is
now.
"""
