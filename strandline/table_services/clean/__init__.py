"""The cleaner: deletes files that no reader within the retained history can need.

``policy`` decides what to keep, ``plan`` what to delete, ``parts`` divides a large plan, and
``planner`` puts the three together, with what timeline and view have; ``run`` decides when a clean
runs, and ``execution`` carries it out. A file is deleted only after a plan on the timeline names
it.
"""
