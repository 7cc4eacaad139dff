"""A table's definition: ``hoodie.properties``, the names in it, and partitions' metadata files.

Files that are changed in place belong here, with the rule by which no crash loses them. Instants
never do.
"""
