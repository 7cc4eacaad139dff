"""Answers about views: computed, or ready as bytes, and whether they are still right.

What turns a question of the wire into bytes belongs here. It reads storage only through the views.
"""
