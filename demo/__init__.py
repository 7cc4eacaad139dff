"""The main job: real flights into a real table through the embedded timeline service.

``python -m demo`` (or ``tox -e demo``) runs it; ``demo.__main__`` says how the parts fit together.
"""
