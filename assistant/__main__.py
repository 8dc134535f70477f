"""The `nightshift` command."""

from __future__ import annotations

import gc

_OBJECTS = 50_000
"""So many more than before are there until garbage is looked for: modules that are loaded make many objects, which all stay, and
looking through them again and again takes a fifth of the time until a command begins."""


def main() -> None:
    """Hand over to the command line."""
    gc.set_threshold(_OBJECTS, 20, 20)
    from assistant.cli.main import run

    run()


if __name__ == "__main__":
    main()
