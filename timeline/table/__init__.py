"""A table's definition: ``hoodie.properties``, the names in it, and partitions' metadata files.

Files that are changed in place belong here, with the code that makes such changes crash-safe.
Instants never change in place.
"""
