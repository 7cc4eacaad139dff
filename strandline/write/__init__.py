"""Strandline's write package."""
