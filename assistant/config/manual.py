"""The manual of the settings, read from the lines below their fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from assistant.config.settings import Settings

__all__ = ["SettingEntry", "describe", "shown"]


class SettingEntry(NamedTuple):
    """One setting as the manual shows it."""

    key: str
    """Dotted, as in a file; the variable is NIGHTSHIFT_ and the key in capitals, `__` for each dot."""
    type: str
    default: str
    """As TOML writes it; empty for none."""
    doc: str


def describe() -> list[SettingEntry]:
    """Return every setting, in the order of the file."""
    return list(_entries(Settings, ""))


def shown(value: Any) -> str:
    """Return a value as TOML writes it; empty for none."""
    if value is None or value == Path():
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) and value != int(value) else str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(shown(item) for item in value)}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: inner for field in dataclasses.fields(value) if shown(inner := getattr(value, field.name))}
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {shown(item)}' for key, item in value.items())} }}" if value else "{}"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else shown(name)


def _entries(kind: type, prefix: str) -> list[SettingEntry]:
    docs = _docs(kind)
    entries: list[SettingEntry] = []
    for field in dataclasses.fields(kind):
        default = getattr(kind(), field.name)
        if dataclasses.is_dataclass(default):
            entries += _entries(type(default), f"{prefix}{field.name}.")
        else:
            entries.append(SettingEntry(prefix + field.name, str(field.type), shown(default), docs.get(field.name, "")))
    return entries


def _docs(kind: type) -> dict[str, str]:
    """Return the string that stands below each field of a class."""
    import ast
    import inspect
    import textwrap
    from itertools import pairwise

    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    docs: dict[str, str] = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            docs[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return docs
