"""Reads ssh_config files as OpenSSH does: `Host`, `Match` (without `exec`), `Include`; the first value of an option counts.

Paramiko's own reader knows no `Include`, and a cluster's configuration is full of it. What an option means is decided in
`ssh_hosts`; here stands only which lines speak about a host.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from glob import glob
from pathlib import Path

from assistant.content.trusted import untrusted_because
from assistant.errors import ConfigError

logger = logging.getLogger(__name__)

DEEPEST_INCLUDE = 16
"""As in OpenSSH; deeper is a file that includes itself."""
_LINE = re.compile(r"\s*+(\w++)(?:\s*+=\s*+|\s++)((?:.*\S)?)\s*", re.DOTALL)
_FLAGS = frozenset({"all", "canonical", "final"})
_RAW = frozenset({"proxycommand", "remotecommand", "localcommand", "knownhostscommand"})
"""Options whose value is a shell command: quotes in it are not ours to take away."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One condition of a block: `host`, `originalhost`, `user`, `localuser`, `all`, or one that is never met."""

    kind: str
    patterns: tuple[str, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """One line that sets something, and under which conditions."""

    key: str
    """Lower case."""
    words: tuple[str, ...]
    location: str
    """`file:line`, for messages."""
    conditions: tuple[Criterion, ...] = ()
    """All must be met."""


@dataclass(frozen=True)
class ConfigReading:
    """Where relative names in a file start, and which files have been read."""

    folder: Path
    home: Path
    files: list[Path] = field(default_factory=list)


def read_config(path: Path, *, home: Path, folder: Path) -> tuple[list[ConfigOption], list[Path]]:
    """Return all options of a file and its includes, in order, and the files that were read.

    Args:
        path: The file; one that is missing or unreadable holds nothing.
        home: What `~` stands for.
        folder: Where relative `Include`s start: `~/.ssh` or `/etc/ssh`.

    Raises:
        ConfigError: A line cannot be understood; the message names file and line.
    """
    reading = ConfigReading(folder, home)
    return list(_options(path, reading, (), 0)), reading.files


def first_values(
    options: list[ConfigOption], facts: Callable[[Mapping[str, ConfigOption]], Mapping[str, str]]
) -> dict[str, list[ConfigOption]]:
    """Return the lines that speak about a host, by key, in order; of most options only the first counts.

    Args:
        options: Of all files, user's first.
        facts: Gives what `Match` looks at (`host`, `originalhost`, `user`, `localuser`), from the options found so far.
    """
    by_key: dict[str, list[ConfigOption]] = {}
    first: dict[str, ConfigOption] = {}
    for option in options:
        if all(_met(criterion, facts(first)) for criterion in option.conditions):
            by_key.setdefault(option.key, []).append(option)
            first.setdefault(option.key, option)
    return by_key


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Return whether a name fits a pattern list: `*`, `?`, and `!` that rules a name out."""
    fits = False
    for pattern in patterns:
        if pattern.startswith("!"):
            if _fits(pattern[1:], name):
                return False
        elif _fits(pattern, name):
            fits = True
    return fits


def _fits(pattern: str, name: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern == name
    return _compiled(pattern).match(name) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern.replace("[", "[[]")))


def _met(criterion: Criterion, facts: Mapping[str, str]) -> bool:
    if criterion.kind == "all":
        return not criterion.negated
    if criterion.kind not in facts:
        return False
    return matches(criterion.patterns, facts[criterion.kind]) is not criterion.negated


def _options(path: Path, reading: ConfigReading, outer: tuple[Criterion, ...], depth: int) -> Iterator[ConfigOption]:
    if depth > DEEPEST_INCLUDE:
        raise ConfigError(f"{path}: Include goes deeper than {DEEPEST_INCLUDE} files: does one include itself?")
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        logger.debug("%s is not read: %s", path, error.strerror)
        return
    why = untrusted_because(path)
    if why:
        # as ssh does: a ProxyCommand in it would run with our rights
        raise ConfigError(f"ssh_config is not used: {why}")
    reading.files.append(path)
    block = outer
    for number, line in enumerate(text.splitlines(), 1):
        location = f"{path}:{number}"
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, words = _split(line, location)
        if key == "host":
            block = (*outer, Criterion("originalhost", words))
        elif key == "match":
            block = (*outer, *_criteria(words, location))
        elif key == "include":
            for included in _included(words, reading):
                yield from _options(included, reading, block, depth + 1)
        else:
            yield ConfigOption(key, words, location, block)


def _split(line: str, location: str) -> tuple[str, tuple[str, ...]]:
    match = _LINE.fullmatch(line)
    if match is None or not match[2]:
        raise ConfigError(f"{location}: {line.strip()!r} is no `Option value`; ssh_config(5) lists the options")
    key = match[1].lower()
    if key in _RAW:
        return key, (match[2],)
    try:
        words = tuple(shlex.split(match[2], comments=True))
    except ValueError as error:
        raise ConfigError(f"{location}: {line.strip()!r}: {error}; close the quote") from error
    if not words:
        raise ConfigError(f"{location}: {match[1]} has no value")
    return key, words


def _criteria(words: tuple[str, ...], location: str) -> list[Criterion]:
    criteria: list[Criterion] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        negated = word.startswith("!")
        kind = word.lstrip("!").lower()
        if kind in _FLAGS:
            # our names are never made canonical, and there is one pass only: what waits for another one is passed over
            criteria.append(Criterion("all" if kind in ("all", "final") else "never", (), negated))
        elif not remaining:
            raise ConfigError(f"{location}: Match {kind} needs a value")
        elif kind in ("host", "originalhost", "user", "localuser"):
            criteria.append(Criterion(kind, tuple(remaining.pop(0).split(",")), negated))
        else:
            logger.debug("%s: Match %s is not looked at: the block never applies", location, kind)
            criteria.append(Criterion("never"))
            remaining.pop(0)
    return criteria


def _included(words: tuple[str, ...], reading: ConfigReading) -> Iterator[Path]:
    for word in words:
        pattern = reading.home / word[2:] if word.startswith("~/") else reading.folder / word
        # the plain function: Path.glob takes no absolute patterns
        yield from (Path(name) for name in sorted(glob(str(pattern))))  # noqa: PTH207
