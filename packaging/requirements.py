"""Print what Nightshift depends on with all its extras, a requirement a line, for `make deps`.

With a name as argument: that requirement only. Without: all of them, but llama-cpp-python only where it is installed already: where
it cannot be built, everything else is installed without it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def name_of(requirement: str) -> str:
    """Return the name before the versions and extras."""
    return re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0]


def main(wanted: list[str]) -> None:
    """Print the requirements."""
    for requirement in chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        name = name_of(requirement)
        if name == PROJECT["name"]:
            continue  # an extra that is made of others
        if name in wanted or (not wanted and (name != "llama-cpp-python" or find_spec("llama_cpp"))):
            print(requirement)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
