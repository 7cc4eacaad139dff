"""Markers that the service keeps for Hudi's writers, and early conflicts between these writers.

Code that makes markers durable, validates them or compares them belongs here; views and HTTP don't.
"""
