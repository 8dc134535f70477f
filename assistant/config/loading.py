"""Load the settings, remember where each one comes from, and read their manual from the lines below their fields.

Later wins: defaults, /etc/nightshift/config.toml, its conf.d/*.toml by name, $XDG_CONFIG_HOME/nightshift/config.toml,
NIGHTSHIFT_* variables (`__` between the keys of a table), what the command line was given explicitly. `NIGHTSHIFT_CONFIG`, or
`--config`, names one file instead of all these files. Tables are joined key by key; lists are replaced.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from assistant.config.settings import Settings
from assistant.content.reading import build, line_of, must_be_trusted, read_toml, untrusted_because
from assistant.errors import ConfigError, ContentError

__all__ = ["LoadedConfig", "SettingEntry", "config_files", "describe", "load", "toml_text"]

logger = logging.getLogger(__name__)


PREFIX = "NIGHTSHIFT_"
SYSTEM_FOLDER = Path("/etc/nightshift")
_NOT_SETTINGS = frozenset(
    {
        "CONFIG", "RESUME_FROM", "STEP", "ARGS", "SKIP_FROM", "SKIP_TO", "SKIP_FROM_STEP", "SKIP_TO_STEP", "ATTEMPT", "VARIABLE",
        "ARGUMENTS", "CHECKPOINTS", "HEARTBEAT", "DEVCLUSTER",
    }
)  # fmt: skip
"""NIGHTSHIFT_CONFIG itself, what a job has in its environment (docs/prepare.md), and where the live tests find their cluster."""


@dataclasses.dataclass(frozen=True)
class LoadedConfig:
    """The settings and their origins."""

    settings: Settings
    origins: Mapping[str, str]
    """By dotted key: `default`, `FILE:LINE`, the name of a variable, or `command line`."""
    files: tuple[Path, ...]
    """Files that were read, in order."""

    def names(self, key: str) -> bool:
        """Tell whether a file, a variable or the command line says a setting, even if it says its default."""
        return self.origins.get(key, "default") != "default"


def load(
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    system: Path = SYSTEM_FOLDER,
) -> LoadedConfig:
    """Return the settings that hold here.

    Args:
        environ: The environment; that of the process when absent.
        overrides: By dotted key, what was given explicitly; None means not given, so an option's default changes nothing.
        config: The only file to read, as `--config` says it.
        system: Folder of the machine's settings.

    Raises:
        ConfigError: A file or variable is wrong; the message names file, line and key, or the variable, and the nearest key.
    """
    environ = os.environ if environ is None else environ
    tables: dict[str, Any] = {}
    origins: dict[str, str] = {}
    files = tuple(config_files(environ, config=config, system=system))
    for path in files:
        table = _checked_table(path)
        tables = _joined(tables, table)
        origins |= {key: f"{path}:{line_of(path, key.rpartition('.')[2])}" for key in _leaves(table)}
    for name, key, value in _variables(environ):
        tables = _joined(tables, _nested(key, value))
        origins |= dict.fromkeys(_leaves(_nested(key, value)), name)
    for key, value in (overrides or {}).items():
        if value is not None:
            raw = str(value) if isinstance(value, Path) else value
            _check(key, raw, "command line")
            tables = _joined(tables, _nested(key, raw))
            origins |= dict.fromkeys(_leaves(_nested(key, raw)), "command line")
    settings = _with_folders(_built(tables), environ)
    _check_programs(settings, origins)
    return LoadedConfig(settings, {key: origins.get(key, "default") for key in _leaves(_plain(settings))}, files)


def config_files(environ: Mapping[str, str], *, config: Path | None = None, system: Path = SYSTEM_FOLDER) -> Iterator[Path]:
    """Yield the settings files that exist, weakest first.

    Raises:
        ConfigError: The one file that was named does not exist.
    """
    named_file = config or (Path(environ["NIGHTSHIFT_CONFIG"]).expanduser() if environ.get("NIGHTSHIFT_CONFIG") else None)
    if named_file is not None:
        if not _is_file(named_file):
            source = "--config" if config is not None else "NIGHTSHIFT_CONFIG"
            raise ConfigError(f"{named_file}: named by {source}, but there is no such file")
        yield named_file
        return
    user = _xdg(environ, "XDG_CONFIG_HOME", ".config") / "nightshift" / "config.toml"
    if _is_file(system / "config.toml"):
        yield system / "config.toml"
    yield from (path for path in sorted((system / "conf.d").glob("*.toml")) if _is_file(path))
    if _is_file(user):
        yield user


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise ConfigError(
            f"{path}: wanted to look for settings, found: {error.strerror}; name another file with NIGHTSHIFT_CONFIG"
        ) from error


def _xdg(environ: Mapping[str, str], name: str, fallback: str) -> Path:
    folder = Path(environ.get(name, ""))
    # the XDG specification: a relative path is invalid and is ignored
    return folder if folder.is_absolute() else Path(environ.get("HOME") or Path.home()) / fallback


def _checked_table(path: Path) -> dict[str, Any]:
    try:
        must_be_trusted(path)
        table = read_toml(path)
        build(Settings, table, path)
    except ContentError as error:
        raise ConfigError(_placed(str(error), path)) from error
    return table


def _placed(message: str, path: Path) -> str:
    """Put the line into a message of `Settings.__post_init__`, which knows the key but not the file."""
    match = re.match(re.escape(str(path)) + r":\d+: ((?:\w+\.)*(\w+)): (.*)", message, re.DOTALL)
    return f"{path}:{line_of(path, match[2])}: {match[1]}: {match[3]}" if match else message


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    known_keys = _known_keys()
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name.removeprefix(PREFIX) in _NOT_SETTINGS:
            continue
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        root = next(
            (
                known_key
                for known_key in known_keys
                if key == known_key or (key.startswith(f"{known_key}.") and known_keys[known_key])
            ),
            None,
        )
        if root is None:
            _unknown_variable(name, key, known_keys)
            continue
        yield name, key, _parsed(name, key, environ[name])


def _unknown_variable(name: str, key: str, known_keys: Mapping[str, bool]) -> None:
    near = difflib.get_close_matches(key, known_keys, n=1, cutoff=0.75)
    if near or "." in key:
        variable = PREFIX + near[0].upper().replace(".", "__") if near else ""
        hint = f"did you mean {variable}?" if near else f"known: {', '.join(known_keys)}"
        raise ConfigError(f"{name}: there is no setting {key!r}; {hint}")
    # a job or a wrapper may have variables of its own under our name
    logger.warning("environment variable %s is no setting and is ignored", name)


def _known_keys() -> dict[str, bool]:
    """Return every dotted key, and whether it is a table with free names."""
    return {key: isinstance(value, Mapping) for key, value in _flat(_plain(Settings())).items()}


def _parsed(name: str, key: str, text: str) -> Any:
    """Return the text itself where the setting is a text or path, else what TOML reads in it."""
    try:
        _check(key, text, name)
    except ConfigError:
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        _check(key, value, name)
        return value
    return text


def _check(key: str, value: Any, source: str) -> None:
    try:
        build(Settings, _nested(key, value), Path(os.devnull))
    except ContentError as error:
        problem = re.sub(rf"^{os.devnull}(:\d+)?: ", "", str(error))
        raise ConfigError(f"{source}: {problem}") from error


def _built(tables: Mapping[str, Any]) -> Settings:
    defaults = {"commands": {name: list(words) for name, words in Settings().commands.items()}}
    return build(Settings, _joined(defaults, tables), Path(os.devnull))


def _with_folders(settings: Settings, environ: Mapping[str, str]) -> Settings:
    state = settings.state_folder
    if state == Path():
        state = _xdg(environ, "XDG_STATE_HOME", ".local/state") / "nightshift"
    store = settings.store if settings.store != Path() else state / "nightshift.db"
    return dataclasses.replace(settings, state_folder=state, store=store)


def _check_programs(settings: Settings, origins: Mapping[str, str]) -> None:
    """Raise where others may write a program that is named by its path; what lies on the nodes only cannot be looked at here."""
    for name, words in settings.commands.items():
        program = Path(words[0])
        if program.is_absolute() and program.exists() and (why := untrusted_because(program)):
            raise ConfigError(f"{origins.get(f'commands.{name}', 'default')}: commands.{name}: {why}")


def _nested(key: str, value: Any) -> dict[str, Any]:
    head, _, inner_key = key.partition(".")
    return {head: _nested(inner_key, value) if inner_key else value}


def _joined(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(under)
    for key, value in over.items():
        inner = joined.get(key)
        joined[key] = _joined(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return joined


def _plain(settings: Any) -> dict[str, Any]:
    """Return dataclasses, also those in a table with free names, as tables."""
    if isinstance(settings, Mapping):
        return {name: _plain(value) if dataclasses.is_dataclass(value) else value for name, value in settings.items()}
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return {
        name: _plain(value) if dataclasses.is_dataclass(value) or isinstance(value, Mapping) else value
        for name, value in values.items()
    }


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    nested = {f.name for f in dataclasses.fields(Settings) if dataclasses.is_dataclass(getattr(Settings(), f.name))}
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if not prefix and key in nested:
            flat |= _flat(value, f"{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _leaves(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from (f"{key}.{inner_key}" for inner_key in _leaves(value))
        else:
            yield key


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


def toml_text(value: Any) -> str:
    """Return a value as TOML writes it; empty for none."""
    if value is None or value == Path():
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) and value != int(value) else str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(toml_text(item) for item in value)}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: inner for field in dataclasses.fields(value) if toml_text(inner := getattr(value, field.name))}
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {toml_text(item)}' for key, item in value.items())} }}" if value else "{}"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else toml_text(name)


def _entries(kind: type, prefix: str) -> list[SettingEntry]:
    docs = _docs(kind)
    entries: list[SettingEntry] = []
    for field in dataclasses.fields(kind):
        default = getattr(kind(), field.name)
        if dataclasses.is_dataclass(default):
            entries += _entries(type(default), f"{prefix}{field.name}.")
        else:
            entries.append(SettingEntry(prefix + field.name, str(field.type), toml_text(default), docs.get(field.name, "")))
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
