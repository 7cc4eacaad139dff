"""What a table is: ``hoodie.properties``, the names in it, and what makes a directory a partition.

Files that are changed in place belong here, with the rule by which no crash loses them. Instants
never do.
"""
