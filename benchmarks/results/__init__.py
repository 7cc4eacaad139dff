"""Measured values beside their targets, as Markdown tables."""
