"""The nouns of a view: files, slices, groups, pending operations, and names of data files.

Frozen values, made when they are asked for, and the contract that every view keeps. A class enters
once two other rooms speak of it. Nothing here is packed, reads storage or knows a timeline.
"""
