"""Take the secrets out of commands that a person is asked about, so that no word hides another one, however many there are.

Redaction of a whole line would let a job's name such as `x password=` hide the option behind it. So each word is first redacted by
itself. Then the line is put together from its last word to its first: where a word lets redaction hide an option, a program or
another command among the words behind it, the value of that word is hidden in their stead, and where it tells that a bare word
behind it is a secret (`--password hunter2`), that bare word is. At the end redaction of the line changes nothing more. The time is
linear in the number of words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from assistant.redact.text import MASK, redact, secret_spans

__all__ = ["KEY", "shown_line"]

KEY = re.compile(r"[A-Za-z-]+=")
"""Before the value of an option or of scontrol's words, which is quoted alone: `Reason='two words'`."""

_WORD = re.compile(r"(?:\$'(?:[^'\\]|\\.)*'|'[^']*'|\"[^\"]*\"|\\.|[^\s'\"\\])+")
"""One word of a command that `rendering.command_line` has put together."""
_SCRIPT = ("SCRIPT[", "'SCRIPT[")
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(?:=|\Z)|-[A-Za-z]\Z|[A-Z][A-Za-z]+=")
"""An option, of scontrol too; what stands behind it with a sign `=` is part of it."""
_HIDDEN = f"'{MASK}'"
_WINDOW = 8
"""Words behind a word that are looked at together with it."""


@dataclass(slots=True)
class _Word:
    """A word of a line, without secrets of its own."""

    text: str
    command: int
    """Number of the command that it belongs to."""
    separator: str
    """Stands before it."""
    is_fixed: bool = False
    """Whether no user chose it: a program, what it is told to do, a script's digest, the note."""
    is_free: bool = field(init=False)
    """Whether it may be a secret because of what stands before it in its command."""

    def __post_init__(self) -> None:
        self.is_free = not self.is_fixed and not _OPTION.match(self.text)

    def hide(self) -> bool:
        """Hide its value; return whether anything was there to hide."""
        if self.is_fixed or self.text.endswith(_HIDDEN):
            return False
        key = KEY.match(self.text)
        self.text = f"{key.group()}{_HIDDEN}" if key and key.end() < len(self.text) else _HIDDEN
        return True


def shown_line(commands: Sequence[str], note_text: str) -> str:
    """Return commands and a note on one line, without secrets; a word that its user chose hides itself at most.

    Args:
        commands: Each as `rendering.command_line` returns it.
        note_text: What stands behind them, with what parts it from them.
    """
    line = "; ".join(commands) + note_text
    if not secret_spans(line):
        return line
    words = list(_words(commands, redact(note_text)))
    for first in range(len(words) - 1, -1, -1):
        _settle(words[first : first + 1 + _WINDOW])
    reach = 1
    while spans := _reached(words, line := _joined(words)):
        # what only words far from each other tell: hide more of those before it each time
        if not _hide_before(words, spans, reach) and reach > len(words):
            break
        reach *= 2
    return redact(line)


def _words(commands: Sequence[str], note_text: str) -> Iterator[_Word]:
    for number, command in enumerate(commands):
        separator = "; " if number else ""
        words = _WORD.findall(command)
        if " ".join(words) != command or not words:
            yield _Word(redact(command), number, separator, is_fixed=True)
            continue
        script = next((place for place, word in enumerate(words) if word.startswith(_SCRIPT)), len(words) - 1)
        free_text = redact(" ".join(words[script + 1 :]))
        programs = 2 if words[0] == "scontrol" else 1
        for place, word in enumerate(words[: script + 1]):
            is_fixed = place < programs or word.startswith(_SCRIPT)
            yield _Word(redact(word), number, " " if place else separator, is_fixed=is_fixed)
        if free_text:
            yield _Word(free_text, number, " ")
    if note_text:
        yield _Word(note_text, len(commands), "", is_fixed=True)


def _joined(words: Sequence[_Word]) -> str:
    return "".join([word.separator + word.text for word in words])


def _reached(words: Sequence[_Word], line: str) -> list[tuple[int, int]]:
    """Return of each secret that redaction sees in a line the first and the last word that it would hide, or a part of."""
    ends: list[int] = []
    end = 0
    for word in words:
        end += len(word.separator) + len(word.text)
        ends.append(end)
    reached: list[tuple[int, int]] = []
    place = 0
    for start, stop in secret_spans(line):
        while ends[place] <= start:
            place += 1
        last = place
        while ends[last] < stop:
            last += 1
        reached.append((place, last))
    return reached


def _settle(words: Sequence[_Word]) -> None:
    """Hide what has to be hidden so that redaction leaves these words alone, the first of which is new; the others were settled."""
    for _ in range(2 * len(words) + 2):
        reached = _reached(words, _joined(words))
        if not reached:
            return
        if _hide_free(words, reached):
            continue
        if max(last for _, last in reached) == 0:
            # only what stands behind it tells that the first word is a secret
            changed = (words[0].is_free and words[0].hide()) or any(word.hide() for word in words[1:])
        else:
            changed = words[0].hide() or any(word.hide() for word in words[1:])
        if not changed:
            return


def _hide_free(words: Sequence[_Word], reached: Sequence[tuple[int, int]]) -> bool:
    """Hide the bare words in the command of the first word that the words before them tell to be secrets; say whether any was."""
    changed = False
    for first, last in reached:
        for word in words[max(first, 1) : last + 1]:
            if not word.is_free or word.command != words[0].command:
                break
            changed = word.hide() or changed
    return changed


def _hide_before(words: Sequence[_Word], reached: Sequence[tuple[int, int]], reach: int) -> bool:
    """Hide the bare words at the beginning of each secret, else so many words up to its first; say whether any was hidden."""
    changed = False
    next_place = 0
    for first, last in reached:
        bare = list(takewhile(lambda word: word.is_free, words[first : last + 1]))
        if sum(word.hide() for word in bare):
            changed = True
            continue
        for word in words[max(next_place, first + 1 - reach) : first + 1]:
            changed = word.hide() or changed
        next_place = first + 1
    return changed
