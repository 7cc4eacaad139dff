"""Interrupts at each step of a piece of code, as a signal handler's ``KeyboardInterrupt``.

CPython runs signal handlers between the opcodes of the main thread. Raising at each opcode in turn,
in the code of chosen modules, is a superset of the places where a real signal can arrive.

The work runs on a thread of its own: an error that is raised while an ``except`` block is left
stays the current one of its thread for ever, and would be the context of all later errors.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def interrupted(
    work: Callable[[], object],
    at: int,
    modules: tuple[ModuleType, ...],
    names: frozenset[str] = frozenset(),
) -> bool:
    """Run ``work`` and interrupt it before its ``at``-th opcode, counted from 1.

    Args:
        work: What to run.
        at: Which opcode of the modules' code.
        modules: The modules in whose code opcodes count, on the thread that runs ``work``.
        names: The names of the functions whose opcodes count; empty: all functions.

    Returns:
        Whether it had so many, so that it was interrupted.
    """
    files = {module.__file__ for module in modules}
    left = at

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        code = frame.f_code
        if code.co_filename not in files or (names and code.co_name not in names):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    outcome: list[bool | BaseException] = []

    def run() -> None:
        sys.settrace(trace)
        try:
            work()
        except KeyboardInterrupt:
            outcome.append(True)
        except BaseException as error:
            outcome.append(error)
        else:
            outcome.append(False)
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (ended,) = outcome
    if isinstance(ended, BaseException):
        raise ended
    return ended
