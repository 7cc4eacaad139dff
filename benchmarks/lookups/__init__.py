"""What ``benchmarks.executors`` measures: single look-ups, and those of whole jobs."""
