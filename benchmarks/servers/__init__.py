"""Timeline servers under measurement: their tables, processes, load and rounds."""
