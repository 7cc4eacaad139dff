"""The report of a run: on the terminal, as an HTML page, as a picture and as JSON.

``report`` has the values and ``summaries`` their sentences. ``terminal``, ``page`` and ``chart``
show them; ``files`` writes the page, the picture and ``metrics.json``.
"""
