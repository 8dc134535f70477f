"""The protected corpus: lines that tell of failures, and the words that give such a line away.

`knowledge/protected/*.txt` holds one whole line of a real program per line; the examples of all signatures belong to it as well.
`knowledge/protected/alarms.toml` lists words that routine output does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assistant.content.reading import build, content_files, read_toml, shipped
from assistant.content.reasons import Role, reasons
from assistant.errors import ContentError


@dataclass(frozen=True)
class Alarms:
    """Words, case matters, that keep a line from being hidden unless a filter describes the line to its end."""

    words: tuple[str, ...]


@cache
def alarm_words(site: Path | None = None) -> tuple[str, ...]:
    """Return the alarm words, the site's file instead of ours where it has one."""
    own = site / "knowledge" / "protected" / "alarms.toml" if site is not None else None
    path = own if own is not None and own.is_file() else shipped("knowledge") / "protected" / "alarms.toml"
    return build(Alarms, read_toml(path), path).words


@cache
def protected_lines(site: Path | None = None) -> tuple[str, ...]:
    """Return the corpus without its comments (`# ` at the start of a line), and the examples of all signatures but benign ones.

    Raises:
        ContentError: A file cannot be read as UTF-8 text.
    """
    lines: dict[str, None] = {}
    for path in content_files("knowledge/protected", site, ".txt"):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ContentError(f"{path}: cannot be read: {error}") from error
        lines |= dict.fromkeys(line for line in text.split("\n") if line.strip() and not line.startswith("# "))
    for reason in reasons(site).values():
        for signature in reason.signature:
            if signature.role is not Role.BENIGN:
                lines |= dict.fromkeys(signature.examples)
    return tuple(lines)
