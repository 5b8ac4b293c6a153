"""``python -m partialbayes`` and ``partialbayes`` are the same command."""

import sys


def main() -> int:
    """Run the command line, or say what it needs."""
    try:
        from partialbayes.cli._main import main as run
    except ImportError as error:
        sys.stderr.write(
            f"partialbayes: the command line needs {error.name}: pip install 'partialbayes[cli]'\n"
        )
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
