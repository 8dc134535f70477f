"""Texts that are secrets by their own form, and the options of programs that take one; both are data in `knowledge/secrets.toml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from assistant.content.reading import build, read_toml, shipped
from assistant.redact.values import is_harmless, looks_random


@dataclass(frozen=True)
class Token:
    """A form that begins with a text of its own."""

    id: str
    prefixes: tuple[str, ...]
    """Any of them begins it; case matters."""
    least: int
    """Characters behind the prefix, at least."""
    source: str
    characters: str = "A-Za-z0-9_-"
    """What may stand behind the prefix, as in a regular expression's brackets."""
    keep: bool = False
    """Whether the prefix stays: the host of a web hook."""
    inside: bool = False
    """Whether it may begin inside a word."""


@dataclass(frozen=True)
class Form:
    """A form without a prefix, as a regular expression whose group `secret` is masked."""

    id: str
    needs: str
    """Text in small letters without which the expression is not tried."""
    pattern: str
    source: str


@dataclass(frozen=True)
class Option:
    """Options of programs whose value is a secret."""

    programs: tuple[str, ...]
    pattern: str
    """Behind the name of the program on the same line; its group `secret` is masked."""


@dataclass(frozen=True)
class SecretForms:
    """The file."""

    token: tuple[Token, ...]
    form: tuple[Form, ...]
    option: tuple[Option, ...]


@cache
def secret_forms() -> SecretForms:
    """Return the shipped forms.

    Raises:
        ContentError: The file is damaged.
    """
    path = shipped("knowledge") / "secrets.toml"
    return build(SecretForms, read_toml(path), path)


def token_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of texts that are secrets by their own form."""
    beginnings, by_prefix = _beginnings()
    position = 0
    while match := beginnings.search(text, position):
        position = match.end()
        for token in by_prefix[match.group()]:
            tail = _tail(token.characters, token.least).match(text, match.end())
            if tail is not None and (token.inside or not _inside_word(text, match.start())):
                yield (match.end() if token.keep else match.start()), tail.end()
                position = tail.end()
                break
    for form in secret_forms().form:
        if form.needs in text:
            yield from (match.span("secret") for match in _compiled(form.pattern).finditer(text))
    yield from _prefixed(text)


def command_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of values of options such as `curl -u user:password`."""
    programs, options = _programs()
    for match in programs.finditer(lowered):
        stop = text.find("\n", match.end(), match.end() + _LINE)
        stop = min(match.end() + _LINE, len(text)) if stop < 0 else stop
        for pattern in options[match.group("program")]:
            for value in _compiled(pattern).finditer(text, match.end(), stop):
                if not is_harmless(value["secret"].strip("\"'")):
                    yield value.span("secret")


_LINE = 1_000
"""Characters of a command line behind the name of its program in which options are looked for."""
_MARKED = re.compile(r"(?<![A-Za-z0-9/+_.-])(?:[a-z]{2,12}\d?[_-]){1,4}(?P<tail>[A-Za-z0-9]{24,256})(?![A-Za-z0-9/+])", re.ASCII)


def _prefixed(text: str) -> Iterator[tuple[int, int]]:
    """Yield tokens of makers that nobody has listed: a short word, a mark, a long random tail of mixed letters and digits."""
    for match in _MARKED.finditer(text):
        tail = match["tail"]
        mixed = (
            any(sign.isupper() for sign in tail) and any(sign.islower() for sign in tail) and any(sign.isdigit() for sign in tail)
        )
        if mixed and looks_random(tail, 24):
            yield match.span()


def _inside_word(text: str, start: int) -> bool:
    return (
        start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_") and text[start - 2 : start] not in ("\\n", "\\t", "\\r")
    )


@cache
def _beginnings() -> tuple[re.Pattern[str], dict[str, list[Token]]]:
    by_prefix: dict[str, list[Token]] = {}
    for token in secret_forms().token:
        for prefix in token.prefixes:
            by_prefix.setdefault(prefix, []).append(token)
    longest_first = sorted(by_prefix, key=lambda prefix: (-len(prefix), prefix))
    return re.compile("|".join(map(re.escape, longest_first))), by_prefix


@cache
def _tail(characters: str, least: int) -> re.Pattern[str]:
    return re.compile(rf"[{characters}]{{{least},8192}}", re.ASCII)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


@cache
def _programs() -> tuple[re.Pattern[str], dict[str, list[str]]]:
    options: dict[str, list[str]] = {}
    for option in secret_forms().option:
        for program in option.programs:
            options.setdefault(program, []).append(option.pattern)
    names = "|".join(re.escape(program) for program in sorted(options, key=len, reverse=True))
    return re.compile(rf"(?<![\w.-])(?P<program>{names})(?=[ \t\"',])"), options
