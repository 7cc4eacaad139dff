"""Which write instants count for a read, archived ones too."""
