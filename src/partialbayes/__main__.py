"""``python -m partialbayes`` and ``partialbayes`` are the same command."""

import os
import signal
import sys
from typing import Any


def main() -> int:
    """Run the command line, or report the missing dependency."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job may ignore it on purpose
        signal.signal(signal.SIGINT, _leave)
    try:
        from partialbayes.cli._main import main as run
    except ImportError as error:
        sys.stderr.write(
            f"partialbayes: the command line needs {error.name}: pip install 'partialbayes[cli]'\n"
        )
        return 2
    return run()


def _leave(number: int, frame: Any) -> None:
    """End the process on Ctrl-C; while it trains, `fit` handles the signal instead.

    A `KeyboardInterrupt` would be lost inside JAX, or unwind C++ that cannot take it. There is
    nothing to clean up: files are written atomically, and the next command removes unfinished ones.
    """
    os.write(2, b"\npartialbayes: interrupted\n" if os.isatty(2) else b"partialbayes: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
