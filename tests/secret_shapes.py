"""Shapes of secrets of mechanisms.toml and syntaxes.toml (tests/cases/redact), their placeholders filled with random text."""

from __future__ import annotations

import base64
import random
import re
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).parent / "cases" / "redact" / "mechanisms.toml"
MECHANISMS = ("prompt", "asked", "around", "yaml", "signing", "nested", "address")
SYNTAXES = ("first", "second", "third")
MARKED = re.compile("«(.*?)»", re.DOTALL)
_PLACEHOLDER = re.compile(r"\{(hex40|hex64|mix24|base44|word|upper|uuid)\}")
_MIXED = string.ascii_letters + string.digits


def filled(shape: str, chance: random.Random) -> str:
    """Return a shape with each placeholder replaced by other random text."""
    return _PLACEHOLDER.sub(lambda match: _random(match[1], chance), shape)


def _random(kind: str, chance: random.Random) -> str:
    if kind.startswith("hex"):
        return chance.randbytes(int(kind[3:]) // 2).hex()
    if kind == "mix24":
        return _of_all_kinds(24, chance)
    if kind == "base44":
        return base64.b64encode(chance.randbytes(32)).decode()
    if kind == "word":
        return f"{_of_all_kinds(5, chance)}{chance.choice('-!_+*')}{_of_all_kinds(4, chance)}{chance.choice('!$%*9')}"
    if kind == "uuid":
        digits = chance.randbytes(16).hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return "".join(chance.choices(string.ascii_uppercase + string.digits, k=20))


def _of_all_kinds(length: int, chance: random.Random) -> str:
    """Return letters and digits among which each kind is."""
    rest = "".join(chance.choices(_MIXED, k=length - 3))
    return "".join(chance.sample(rest + chance.choice("abcdefgh") + chance.choice("RSTUVWXYZ") + chance.choice("23456789"), length))


def plain(shape: str) -> str:
    """Return the text of a shape without its marks."""
    return re.sub("[«»]", "", shape)


_TELLING = 3
"""Letters and digits of a piece: signs alone stand elsewhere in the same line, too."""


def pieces(shape: str, length: int = 8) -> set[str]:
    """Return the secrets of a shape and all their pieces of a length."""
    secrets = MARKED.findall(shape)
    parts = {part for secret in secrets for part in (secret, *(secret[n : n + length] for n in range(len(secret) - length + 1)))}
    return {part for part in parts if sum(map(str.isalnum, part)) >= min(_TELLING, length)}


def left_of(shape: str, text: str, length: int = 8) -> list[str]:
    """Return what is left of the secrets of a shape in a text: whole ones, and pieces of a length."""
    return sorted(part for part in pieces(shape, length) if part in text)


def shapes(mechanism: str, seed: int = 16) -> list[str]:
    """Return the shapes of a mechanism or of syntaxes, filled."""
    chance = random.Random(seed)
    file = FILE if mechanism in MECHANISMS else FILE.with_name("syntaxes.toml")
    return [filled(shape, chance) for shape in tomllib.loads(file.read_text(encoding="utf-8"))[mechanism]]


def keys(seed: int = 16) -> Iterator[tuple[str, str]]:
    """Yield a name and the shape of keys: whole, without its first or its last line, behind what a launcher prints."""
    chance = random.Random(seed)
    for number, key in enumerate(tomllib.loads(FILE.read_text(encoding="utf-8"))["key"]):
        for mark in ("", "[default0]:", "0: ", "2026-03-01 10:00:01 "):
            body = base64.b64encode(chance.randbytes(700)).decode().rstrip("=")
            rows = [body[start : start + key["width"]] for start in range(0, key["width"] * 6, key["width"])]
            lines = [f"{mark}«{row}»" for row in (*rows, filled(key["last"], chance))]
            begin = [mark + line for line in key["begin"].split("\n")]
            end = [mark + line for line in key["end"].split("\n")]
            for name, texts in (
                ("whole", [*begin, *lines, *end]),
                ("no head", [*lines[2:], *end]),
                ("no end", [*begin, *lines]),
                ("middle", lines[2:]),
            ):
                yield f"{number} {mark.strip()} {name}", "\n".join([f"{mark}step 1 loss 2.5", *texts, f"{mark}step 2 loss 2.4"])


_ORDINARY = FILE.parent / "ordinary.toml"
_IN_ORDINARY = re.compile(r"\{(n|f|hex8|hex40|hex64|uuid|host|file|name|step)\}")
_NAMES = "alpha mistral corpus encoder train wiki llama reader bench router shard probe swift otter maple".split()


def ordinary(count: int, seed: int = 16) -> list[str]:
    """Return ordinary lines made from templates, each template as often as another."""
    chance = random.Random(seed)
    templates = tomllib.loads(_ORDINARY.read_text(encoding="utf-8"))["line"]
    return [
        _IN_ORDINARY.sub(lambda match: _ordinary(match[1], chance), templates[place % len(templates)]) for place in range(count)
    ]


def _ordinary(kind: str, chance: random.Random) -> str:
    name = chance.choice(_NAMES)
    ending = chance.choice(("json", "pt", "log", "py", "yaml"))
    if kind.startswith("hex"):
        return chance.randbytes(int(kind[3:]) // 2).hex()
    return {
        "n": str(chance.randint(0, 9) if chance.random() < 0.3 else chance.randint(10, 250_000)),
        "f": f"{chance.random() * 10:.4f}",
        "step": str(chance.randint(1, 90) * 500),
        "uuid": _random("uuid", chance),
        "host": f"{name}{chance.randint(1, 99):02}.site7.example",
        "file": f"/data/{name}/{chance.choice(_NAMES)}_{chance.randint(0, 999):03}.{ending}",
    }.get(kind, name)
