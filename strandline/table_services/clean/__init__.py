"""The cleaner deletes files that no reader within the retained history can ask for.

What to keep (``policy``), what to delete (``plan``), when a clean runs (``run``) and how it is
carried out (``execution``, ``deletion``) belong here. A file is deleted only after a plan on the
timeline names it.
"""
