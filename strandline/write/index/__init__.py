"""Indexes find the stored file group of each row's key; tagging adds it to the row.

The contract of an index (``base``), the search in base files (``search``) with the tagging of its
results (``search_tagging``), and the bucket index (``bucket``) belong here. Which file group a new
key goes to is decided by ``strandline.write.tasks.placement``.
"""
