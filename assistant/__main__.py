"""The `nightshift` command."""

from __future__ import annotations


def main() -> None:
    """Hand over to the command line."""
    from assistant.doors.cli.main import run

    run()


if __name__ == "__main__":
    main()
