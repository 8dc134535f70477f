"""Names that libraries took away, and packages that are named otherwise than their module: knowledge/renames.toml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assistant.content.reading import build, knowledge_file, read_toml


@dataclass(frozen=True)
class Rename:
    """A name that is gone."""

    old: str
    """Attribute, argument, module or function."""
    library: str
    now: str
    """What stands in its place."""
    since: str
    """First version of the library for which that holds."""
    of: str = ""
    """Words that the message has to hold besides, where the name alone may mean something else."""


@dataclass(frozen=True)
class Package:
    """A package whose module is named otherwise."""

    module: str
    holds: str
    """What to install for it."""


@dataclass(frozen=True)
class _File:
    rename: tuple[Rename, ...]
    package: tuple[Package, ...]


@cache
def _known() -> _File:
    path: Path = knowledge_file("renames.toml")
    return build(_File, read_toml(path), path)


def successor_of(name: str, message: str) -> Rename | None:
    """Return what became of a name that a message complains of; None where that is not known."""
    return next((rename for rename in _known().rename if rename.old == name and rename.of in message), None)


def package_for(module: str) -> str:
    """Return the package that holds a module, where its name differs; else empty."""
    top = module.partition(".")[0]
    return next((package.holds for package in _known().package if package.module in (module, top)), "")
