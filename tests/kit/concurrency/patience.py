"""How long tests wait for what happens at once, unless a test fails or the machine is busy."""

import threading
from typing import Final

PATIENCE_S: Final = 60.0
"""A wait that ends by itself; longer than any pause of a loaded machine, shorter than a hang."""
PROCESS_S: Final = 300.0
"""A process that imports everything, works and ends."""
_PAUSE_S: Final = 0.05


def pause() -> None:
    """Wait a moment before something is asked again that has no event.

    Whoever asks all the time takes the core from what he waits for.
    """
    threading.Event().wait(_PAUSE_S)
