"""Read what `module load` would put into the variables of a shell, from modulefiles (Tcl, Lua) that name their folders. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from assistant.recover.batch_script import Launch
from assistant.recover.shell.folders import UNRESOLVED

__all__ = ["DEFAULT_FOLDERS", "VariableFolder", "modulefile_folders", "modulefile_settings"]

DEFAULT_FOLDERS = (
    "/usr/share/modulefiles",
    "/etc/modulefiles",
    "/usr/share/Modules/modulefiles",
    "/usr/share/modules/modulefiles",
    "/opt/modulefiles",
)
"""Source: the packages environment-modules and Lmod of Debian and of Enterprise Linux."""
COMMANDS = frozenset(("module", "ml"))
_TCL_NAME = re.compile(r"^\s*set\s+(\w{1,40})\s+[\"']?(/[^\s\"';]{1,200})", re.MULTILINE)
_LUA_NAME = re.compile(r"^\s*(?:local\s+)?(\w{1,40})\s*=\s*[\"'](/[^\"'\n]{1,200})[\"']", re.MULTILINE)
_TCL_PREPENDED = re.compile(r"^\s*(?:prepend|append)-path\s+(\w{1,40})\s+[\"']?([^\s\"';]{1,300})", re.MULTILINE)
_LUA_PREPENDED = re.compile(r"\b(?:prepend|append)_path\s*\(\s*[\"'](\w{1,40})[\"']\s*,\s*([^\n]{1,300})", re.MULTILINE)
_TCL_USED = re.compile(r"\$\{?(\w{1,40})\}?")
_LUA_PART = re.compile(r"\s*(?:pathJoin\s*\(|[\"']([^\"'\n]{0,200})[\"']|([A-Za-z_]\w{0,40})|\.\.|,|\))")


class VariableFolder(NamedTuple):
    """A folder that a modulefile puts into a variable such as PATH."""

    variable: str
    folder: str


def modulefile_folders(launches: Iterable[Launch], module_path: Iterable[str]) -> Iterator[str]:
    """Yield the folders in which modulefiles of a script are looked for: those it uses, those of MODULEPATH, the usual ones."""
    for words in _module_words(launches):
        if "use" in words:
            yield from (word for word in words[words.index("use") + 1 :] if word.startswith("/"))
    yield from module_path
    yield from DEFAULT_FOLDERS


def modulefile_settings(
    launches: Iterable[Launch], folders: Iterable[str], read: Callable[[str], str | None]
) -> Iterator[VariableFolder]:
    """Yield what the modules that a script loads add to variables, as far as their files can be read.

    Args:
        launches: Commands of the script.
        folders: From `modulefile_folders`.
        read: Returns a file's text by its absolute path, None where it cannot be read.
    """
    places = [folder.rstrip("/") for folder in dict.fromkeys(folders) if folder.startswith("/") and UNRESOLVED not in folder]
    for words in _module_words(launches):
        names = words[words.index("load") + 1 :] if "load" in words else words if "use" not in words else ()
        for name in (name for name in names if not name.startswith(("-", "/", ".")) and UNRESOLVED not in name):
            for place in places:
                if (text := read(f"{place}/{name}.lua")) is not None:
                    yield from _of_lua(text)
                elif (text := read(f"{place}/{name}")) is not None:
                    yield from _of_tcl(text)


def _module_words(launches: Iterable[Launch]) -> Iterator[Sequence[str]]:
    return (launch.words[1:] for launch in launches if launch.words[0] in COMMANDS)


def _of_tcl(text: str) -> Iterator[VariableFolder]:
    names = dict(_TCL_NAME.findall(text))
    for variable, word in _TCL_PREPENDED.findall(text):
        folder = _TCL_USED.sub(lambda match: names.get(match[1], UNRESOLVED), word)
        yield from (VariableFolder(variable, part) for part in folder.split(":") if part.startswith("/") and UNRESOLVED not in part)


def _of_lua(text: str) -> Iterator[VariableFolder]:
    names = dict(_LUA_NAME.findall(text))
    for variable, expression in _LUA_PREPENDED.findall(text):
        folder, place, joined = "", 0, "pathJoin" in expression
        while (part := _LUA_PART.match(expression, place)) is not None and part.end() > place:
            word = part[1] if part[1] is not None else names.get(part[2], UNRESOLVED) if part[2] else ""
            folder += f"/{word.strip('/')}" if joined and word else word
            place = part.end()
        if folder.startswith("/") and UNRESOLVED not in folder:
            yield VariableFolder(variable, folder)
