"""The modules of `assistant/` and `tools/`, read and parsed once for all the tests that judge them."""

from __future__ import annotations

import ast
import gc
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def sources() -> Mapping[str, bytes]:
    """Return the text of each module by its path from the root of the repository, in order; a link is not followed."""
    paths = [path.relative_to(ROOT) for top in ("assistant", "tools") for path in sorted((ROOT / top).rglob("*.py"))]
    own = [path for path in paths if not any((ROOT / parent).is_symlink() for parent in path.parents)]
    return {path.as_posix(): (ROOT / path).read_bytes() for path in own}


@cache
def syntax_trees() -> Mapping[str, ast.Module]:
    """Return the tree of each module of `sources`; whoever gets them changes nothing in them."""
    gc.disable()  # a million nodes that all stay: looking for garbage among them again and again is most of the work
    try:
        return {name: ast.parse(source) for name, source in sources().items()}
    finally:
        gc.freeze()
        gc.enable()
