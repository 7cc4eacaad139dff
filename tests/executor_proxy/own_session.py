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


def makes_nothing() -> None:
    """Return no session."""


def needs_arguments(url: str) -> requests.Session:
    """Be called without what it needs."""
    raise AssertionError(url)


def fails() -> requests.Session:
    """Raise an error of its own."""
    raise OSError("no proxy is configured")
