"""Indexes find the stored file group of each row's key; tagging adds it to the row.

What an index is given and must return (``base``), the search in base files (``search``), the bucket
index (``bucket``) and what they have in common (``tagging``) belong here. Which
file group a new key goes to is decided by ``strandline.write.tasks.placement``.
"""
