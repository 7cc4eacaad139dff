"""The one door to the file system; see ``timeline.storage.base``."""
