"""The cleaner deletes files that no reader within the retained history can ask for.

What to keep (``policy``), what to delete (``plan``) and how a clean runs on the timeline (``run``,
``deletion``) belong here. A file is deleted only after a plan on the timeline names it.
"""
