"""The write instants that are visible to a read, archived ones included."""
