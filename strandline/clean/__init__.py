"""Strandline's clean package."""
