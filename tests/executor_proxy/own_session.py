"""A factory of sessions, as a user of ``connect(..., session=...)`` would write one."""

from __future__ import annotations

import requests


def make() -> requests.Session:
    """Return a session that says who sends."""
    session = requests.Session()
    session.headers["User-Agent"] = "own-session"
    session.trust_env = False
    return session


NOT_A_FACTORY = "a string"
