"""The demo: real flights, written into a Hudi table through the embedded timeline service.

Run it with ``python -m demo`` or ``tox -e demo``; ``demo.__main__`` describes its parts.
"""
