"""Print what Nightshift depends on, a requirement a line, for `make deps`.

With a name as argument: that requirement only. Without: all of them, but llama-cpp-python only where it is installed already: where
it cannot be built, everything else is installed without it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

REQUIREMENTS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]


def name_of(requirement: str) -> str:
    """Return the name before the versions."""
    return re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0]


def main(wanted: list[str]) -> None:
    """Print the requirements."""
    for requirement in REQUIREMENTS:
        name = name_of(requirement)
        if name in wanted or (not wanted and (name != "llama-cpp-python" or find_spec("llama_cpp"))):
            print(requirement)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
