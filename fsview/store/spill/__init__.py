"""Chunks in memory as far as the budget allows, the others in one unlinked file.

The room decides which blobs are in memory and manages the file's space. Nothing in it outlives the
process, and no row is kept.
"""
