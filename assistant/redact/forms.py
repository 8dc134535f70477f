"""Find texts that are secrets by their own form: keys, tokens, values of options of programs, random values behind a maker's name.

The forms, the programs and the makers stand in `knowledge/secrets.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from assistant.content.reading import build, read_toml, shipped
from assistant.redact.values import is_harmless, looks_random, switches


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
    """Text without which the expression is not tried."""
    pattern: str
    source: str
    random: int = 0
    """Characters of the run of mixed letters and digits that the secret must hold; 0: any text is one."""


@dataclass(frozen=True)
class SecretOption:
    """Options of programs whose value is a secret."""

    programs: tuple[str, ...]
    pattern: str
    """Behind the name of the program on the same line; its group `secret` is masked."""


@dataclass(frozen=True)
class Maker:
    """Makers of services: a random value behind a name that holds theirs is a secret."""

    names: tuple[str, ...]
    """In small letters."""
    source: str


@dataclass(frozen=True)
class SecretForms:
    """The shipped file of forms of secrets."""

    token: tuple[Token, ...]
    form: tuple[Form, ...]
    option: tuple[SecretOption, ...]
    maker: tuple[Maker, ...] = ()


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
    for inside in (False, True):
        beginnings, by_prefix = _beginnings(inside)
        position = 0
        while match := beginnings.search(text, position):
            position = match.end()
            for token in by_prefix[match.group()]:
                if tail := _tail(token.characters, token.least).match(text, match.end()):
                    yield (match.end() if token.keep else match.start()), tail.end()
                    position = tail.end()
                    break
    for form in secret_forms().form:
        if form.needs in text:
            for match in _compiled(form.pattern).finditer(text):
                if not form.random or looks_random(match["secret"], form.random):
                    yield match.span("secret")
    yield from _prefixed(text)


def command_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of values of options such as `curl -u user:password`."""
    programs, options = _programs()
    scanned: dict[str, int] = {}  # where each pattern has looked: lines may name a program a thousand times
    for match in programs.finditer(lowered):
        stop = text.find("\n", match.end(), match.end() + _LINE)
        stop = min(match.end() + _LINE, len(text)) if stop < 0 else stop
        for pattern in options[match.group("program")]:
            start, scanned[pattern] = max(match.end(), scanned.get(pattern, 0)), stop
            for value in _compiled(pattern).finditer(text, start, stop):
                if not is_harmless(value["secret"].strip("\"'")):
                    yield _to_quote(text, *value.span("secret"), stop)


def _to_quote(text: str, start: int, end: int, stop: int) -> tuple[int, int]:
    """Return the span of a value that begins behind a quote, with all its words."""
    quote = text[start - 1 : start]
    if quote not in ("'", '"') or text[end : end + 1] == quote:
        return start, end
    closing = text.find(quote, end, min(stop, start + _LONGEST_QUOTED))
    return start, closing if closing >= 0 else end


_LONGEST_QUOTED = 256


def maker_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of random values behind names of makers: `adafruit_io: 0f3a...`, `"twitter" => "..."`."""
    last = 0
    for match in _makers().finditer(lowered):
        if match.end() < last:
            continue
        value = _BEHIND_MAKER.match(text, match.end())
        if value and (looks_random(value["secret"], 16) or _UUID.fullmatch(value["secret"])):
            last = value.end()
            yield value.span("secret")


@cache
def _makers() -> re.Pattern[str]:
    return re.compile(_any_of(name for maker in secret_forms().maker for name in maker.names))


# no sign that stands between name and value is in the value: or each name of `twitter=twitter=` would look at all behind it
_BEHIND_MAKER = re.compile(
    r"[\w.-]{0,30}(?: [\w.-]{1,20}){0,2}[\s'\"`]{0,3}(?:=>|:{1,3}=|\|\||\?=|[=:>,])[\s'\"`=]{0,5}"
    r"(?P<secret>[A-Za-z0-9_.+~-]{16,256}={0,2})",
    re.ASCII,
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
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
        if mixed and looks_random(tail, 24) and not _DIGEST.search(text, max(match.start() - 24, 0), match.start()):
            yield match.span()


_RUN = re.compile(r"(?<![A-Za-z0-9+/=_.-])[A-Za-z0-9+/_-]{32,8192}={0,2}", re.ASCII)
_DIGEST = re.compile(
    r"(?:sha\d{1,3}|md5|blake\w{1,3}|digest|fingerprint|integrity|etag|nix|checksum|public[_ -]?key|pubkey|peer|h1"
    r"|(?:\b|[a-z_ -])id(?:[_-]?\d)?|trace)[\"']?[ \t]{0,4}[:=-][ \t\"']{0,3}\Z",
    re.IGNORECASE,
)
"""What says in front of a random text that it is none to hide: a digest, a public key, the id of a request or version."""
_OWN_DIGEST = re.compile(r"(?:sha\d{1,3}|md5|blake\w{1,3}|nix)-", re.IGNORECASE)
_PICTURES = ("iVBORw0KGgo", "/9j/4", "R0lGODlh", "R0lGODdh", "UklGR", "JVBERi0")
"""How base64 of PNG, JPEG, GIF, WebP and PDF begins."""
_LEAST_SHARE, _LONG_PART, _LONG_RUN, _SIGNS_OF_SLASH = 0.45, 32, 40, 12
"""Changes between kinds of letters per character: random text of base64 has 0.6, names of symbols and runs up to 0.35."""


def random_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of long random texts of mixed letters and digits, whatever stands before them.

    Digests and public keys are none. Names of functions, paths and runs change less often between kinds of letters.
    """
    for match in _RUN.finditer(text):
        run = match.group()
        if (
            run.startswith(("AAAA", "_Z", *_PICTURES))
            or _OWN_DIGEST.match(run)
            or run.islower()
            or run.isupper()
            or not _is_random(run)
        ):
            continue
        if not _DIGEST.search(text, max(match.start() - 24, 0), match.start()):
            yield match.span()


def _is_random(run: str) -> bool:
    body = run.rstrip("=")
    if len(body) >= _LONG_RUN and body.count("/") * _SIGNS_OF_SLASH <= len(body) and _is_mixed(body):
        return True
    return any(len(part) >= _LONG_PART and _is_mixed(part) for part in re.split(r"[/_+-]", body))


def _is_mixed(text: str) -> bool:
    head = text[:256]
    kinds = sum(map(str.isupper, head)), sum(map(str.islower, head)), sum(map(str.isdigit, head))
    return min(kinds) >= 3 and switches(head) >= _LEAST_SHARE * len(head)


_BOUNDARY = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))"
"""No letter of the same word; the letter of an escape is none."""


@cache
def _beginnings(inside: bool) -> tuple[re.Pattern[str], dict[str, list[Token]]]:
    by_prefix: dict[str, list[Token]] = {}
    for token in secret_forms().token:
        for prefix in token.prefixes if token.inside is inside else ():
            by_prefix.setdefault(prefix, []).append(token)
    return re.compile(("" if inside else _BOUNDARY) + _any_of(by_prefix)), by_prefix


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern of the longest of some words, as a tree: alternatives one by one would be tried at every place."""
    heads: dict[str, list[str]] = {}
    for word in words:
        heads.setdefault(word[:1], []).append(word[1:])
    branches = [re.escape(head) + _any_of(set(tails)) for head, tails in sorted(heads.items(), reverse=True) if head]
    if not branches:
        return ""
    tree = branches[0] if len(branches) == 1 and "" not in heads else f"(?:{'|'.join(branches)})"
    return f"{tree}?" if "" in heads else tree


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
    return re.compile(rf"(?<![\w.-])(?P<program>{_any_of(options)})(?=[ \t\"',])"), options
