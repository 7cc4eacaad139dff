"""The cleaner: deletes files that no reader within the retained history can ask for."""
