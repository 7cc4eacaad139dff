"""Which files make up a table at an instant."""
