"""Strandline's service package."""
