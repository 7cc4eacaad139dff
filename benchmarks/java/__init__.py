"""Hudi's own server and REMOTE view in a JVM, for comparison."""
