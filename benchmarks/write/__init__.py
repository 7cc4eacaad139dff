"""Writes of this package beside those of Hudi and deltalake: ``python -m benchmarks.write``."""
