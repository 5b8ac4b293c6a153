"""Ctrl-C, taken note of: never raised where an exception could do harm.

JAX traces and lowers a program by Python code that C++ calls and that calls C++. A `KeyboardInterrupt`
raised in the middle of that unwinds through frames that do not expect one, and has ended whole processes
by a segmentation fault. So the signal is noted while anything is compiled or computed, and acted upon
after.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any


class Interrupts:
    """Notes Ctrl-C as long as it is entered; outside the main thread there is none to note.

    Attributes:
        noted: Whether there was one.
    """

    def __init__(self) -> None:
        self.noted = False
        self._computing = False
        self._previous: Any = None
        self._is_main = False

    def __enter__(self) -> Interrupts:
        """Take over the signal."""
        self._is_main = threading.current_thread() is threading.main_thread()
        if self._is_main:
            self._previous = signal.getsignal(signal.SIGINT)
            outer = getattr(self._previous, "__self__", None)
            if isinstance(outer, Interrupts) and outer.noted:
                # Whoever is entered next is in a better place to act upon it.
                self.noted, outer.noted = True, False
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the signal back."""
        if self._is_main:
            # None stands for a handler that was not set by Python, and cannot be set again by it.
            previous = signal.SIG_DFL if self._previous is None else self._previous
            signal.signal(signal.SIGINT, previous)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Nothing is raised in this block, however often Ctrl-C is pressed."""
        before, self._computing = self._computing, True
        try:
            yield
        finally:
            self._computing = before

    def _note(self, number: int, frame: Any) -> None:
        if self.noted and not self._computing:
            raise KeyboardInterrupt  # the second time, in a callback that does not end, say
        self.noted = True


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Compute to the end of this block, then raise the `KeyboardInterrupt` there was, if any."""
    with Interrupts() as interrupts, interrupts.computing():
        yield
    if interrupts.noted:
        raise KeyboardInterrupt
