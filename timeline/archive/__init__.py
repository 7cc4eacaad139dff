"""Instants that were moved out of the active timeline, from version 8 on and of version 6.

Readers only, with the same answers as the active timeline. A table's current state never needs
them.
"""
