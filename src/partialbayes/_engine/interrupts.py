"""Record Ctrl-C, and raise it only where an exception does no harm.

JAX traces and lowers a program by Python code that C++ calls and that calls C++. A `KeyboardInterrupt`
raised in between unwinds through frames that do not expect it, and has ended processes by a
segmentation fault. So the signal is recorded while anything is compiled or computed, and handled
afterwards.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupts:
    """A handler that records Ctrl-C while it is entered; it does nothing outside the main thread.

    Attributes:
        noted: Whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.noted = False
        self._computing = False
        self._previous: Any = None
        self._is_main = False

    def __enter__(self) -> Interrupts:
        """Replace the signal handler."""
        self._is_main = threading.current_thread() is threading.main_thread()
        if self._is_main:
            self._previous = signal.getsignal(signal.SIGINT)
            outer = getattr(self._previous, "__self__", None)
            if isinstance(outer, Interrupts) and outer.noted:
                # Whoever is entered next is in a better place to act upon it.
                self.noted, outer.noted = True, False
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the signal handler."""
        if self._is_main:
            # None means a handler that Python did not set, and cannot set again.
            previous = signal.SIG_DFL if self._previous is None else self._previous
            signal.signal(signal.SIGINT, previous)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Raise nothing in this block, however often Ctrl-C is pressed."""
        before, self._computing = self._computing, True
        try:
            yield
        finally:
            self._computing = before

    def _note(self, number: int, frame: Any) -> None:
        if self.noted and not self._computing:
            raise KeyboardInterrupt  # the second time, for example in a callback that does not end
        self.noted = True


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Compute to the end of this block, then raise `KeyboardInterrupt` if Ctrl-C was pressed."""
    with Interrupts() as interrupts, interrupts.computing():
        yield
    if interrupts.noted:
        raise KeyboardInterrupt
