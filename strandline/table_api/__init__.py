"""``Table`` and its parts: history, inspection, metadata as Arrow rows.

Nothing here writes. The modules are used through ``strandline.Table``.
"""
