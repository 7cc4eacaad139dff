"""Chunks in memory as far as the budget goes, the others in one file without a name.

What decides which blob lies where belongs here, and the file's space. Nothing here outlives the
process.
"""
