"""The cleaner: deletes files that no reader within the retained history can need.

``policy`` decides what to keep, ``plan`` what to delete, ``parts`` divides a large plan, ``run``
decides when a clean runs; ``execution`` carries it out. A file is deleted only after a plan on the
timeline names it.
"""
