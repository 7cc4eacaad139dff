"""Markers that the service keeps for Hudi's writers, and early conflicts between these.

What makes a marker durable before it is acknowledged belongs here. No view is asked here.
"""
