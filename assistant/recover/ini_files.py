"""Settings out of INI files, as Python's `configparser` reads them: sections of plain values. Pure; nothing is expanded twice."""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping

from assistant.recover.shell.folders import UNRESOLVED

__all__ = ["INI_SUFFIXES", "ini_tables"]

INI_SUFFIXES = frozenset((".ini", ".cfg", ".conf"))
MOST_CHARACTERS = 4_096
"""Of one value with what it refers to filled in; a longer one is no path."""
_REFERENCE = re.compile(r"%\(([^()]{1,200})\)s|%%")


def ini_tables(text: str) -> dict[str, dict[str, str]]:
    """Return the values of an INI file by section and key, with `%(key)s` of the same section or of DEFAULT filled in.

    A value that refers to one which refers further is `UNRESOLVED`: only a run can tell it.

    Raises:
        ValueError: The text is no INI file.
    """
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(f"no INI file: {type(error).__name__}") from error
    tables = {}
    for section in parser.sections():
        values = {key: value for key, value in parser.items(section) if value is not None}
        tables[section] = {key: _filled(value, values) for key, value in values.items()}
    return tables


def _filled(value: str, values: Mapping[str, str]) -> str:
    if "%" not in value:
        return value
    unknown = False

    def fill(match: re.Match[str]) -> str:
        nonlocal unknown
        if match[1] is None:
            return "%"
        inner = values.get(match[1].lower(), UNRESOLVED)
        unknown |= _REFERENCE.search(inner) is not None or len(inner) > MOST_CHARACTERS
        return inner if not unknown else ""

    filled = _REFERENCE.sub(fill, value[:MOST_CHARACTERS])
    return UNRESOLVED if unknown or len(filled) > MOST_CHARACTERS else filled
