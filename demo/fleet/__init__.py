"""A fleet under a Spark job, while its servers, ZooKeeper and PostgreSQL are killed.

``python -m demo.fleet`` or ``tox -e fleet-demo``.
"""
