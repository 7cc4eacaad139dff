"""The front door: ``Table``, ``TimelineService``, ``WriteClient``."""
