"""What the tests of the demo share."""

import pytest

from demo.feed import flights


@pytest.fixture(scope="session")
def rows():
    """Return the flights, read once."""
    return flights()
