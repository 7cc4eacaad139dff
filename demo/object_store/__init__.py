"""The demo on an object store: what look-ups of a job's tasks cost, asked in three ways.

``server`` runs the S3 server and counts requests in its log, ``lake`` makes the tables, ``ways``
asks, ``job`` writes days with Spark and has its tasks ask, ``run`` runs all of it. ``record`` has
the values and checks of the report, ``terminal``, ``page`` and ``files`` show and write it.
"""
