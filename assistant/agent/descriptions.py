"""Jobs that a question describes instead of naming them: `alice's run`, `the 13b job`, `carols sft`.

A description is an account, a part of a job's name, or both, before a word for a job. It stands for the jobs that fit it; which of
several is meant is for the question to decide, see `likeliest`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_NOUN = r"(?:job|run|training|one|finetune|fine-tune|pretrain|pretraining|experiment|sweep|eval|evaluation)(?:'s)?"
_OF = r"(?:['\u2019]?s|['\u2019])?"
"""What makes an account the owner: `alice's`, `alices`, `carlos'`, or nothing."""
_POSSESSIVE = r"(?:['\u2019]?s|['\u2019])"
_PARTS = re.compile(r"[A-Za-z0-9.]+")
SHORTEST_PART = 2
SHORTEST_STEM = 4
MOST_JOBS, MOST_PARTS = 2_000, 1_000
"""Newest jobs that a description may stand for, and parts of their names that are looked for."""


class DescriptionReading(NamedTuple):
    """A question with its descriptions replaced."""

    text: str
    jobs: tuple[str, ...]
    """The jobs that fit, newest first; of several descriptions the first."""


def take_description(text: str, names: Mapping[str, str], owners: Mapping[str, str]) -> DescriptionReading:
    """Return a question with `{job}` in the place of a description of jobs.

    A part of a name counts where an account stands before it, a word for a job behind it, or where it holds a digit: `7b` describes
    a job, `eval` alone does not.

    Args:
        text: The question.
        names: Name of each job by its id, oldest first.
        owners: Account of each job.
    """
    newest = list(names.items())[-MOST_JOBS:]
    parts = _parts_of([name for _, name in newest])
    users = sorted({owners[job] for job, _ in newest if owners.get(job)}, key=len, reverse=True)
    user_words = "|".join(map(re.escape, users)) or r"(?!)"
    part_words = "|".join(map(re.escape, sorted(parts, key=len, reverse=True))) or r"(?!)"
    pattern = re.compile(
        rf"(?<![\w-])(?:the |that )?(?P<kind>{part_words}|evaluation|evals?|job|run|training)(?: job| run| training)? (?:of"
        rf"|from|by) (?P<of>{user_words})(?![\w-])"
        rf"|(?<![\w-])(?:the |that )?(?:(?P<user>{user_words}){_OF} )?(?P<part>{part_words})(?![\w-])(?P<noun> {_NOUN}\b)?"
        rf"|(?<![\w-])(?P<owner>{user_words}){_POSSESSIVE} {_NOUN}(?![\w-])"
        rf"|(?<![\w-])(?<!did )(?<!does )(?<!has )(?<!can )(?<!could )(?<!would )(?<!will )(?P<plain>{user_words}) {_NOUN}"
        r"(?![\w-])",
        re.IGNORECASE,
    )
    for match in pattern.finditer(text):
        user = (match["user"] or match["owner"] or match["plain"] or match["of"] or "").lower()
        part = (match["part"] or match["kind"] or "").lower()
        part = "" if part in ("job", "run", "training") and match["of"] else part
        if part and not (user or match["noun"] or any(letter.isdigit() for letter in part)):
            continue
        fitting = [
            job
            for job, name in reversed(newest)
            if (not user or owners.get(job, "").lower() == user) and (not part or _is_named(part, name))
        ]
        if fitting:
            return DescriptionReading(f"{text[: match.start()]} {{job}} {text[match.end() :]}", tuple(fitting))
    return DescriptionReading(text, ())


def _is_named(part: str, name: str) -> bool:
    """Tell whether a part of a description is one of a name: `evaluation` is of eval-suite."""
    return any(
        word == part or (len(word) >= SHORTEST_STEM and part.startswith(word) and not part.isdecimal()) for word in _words_of(name)
    )


def _parts_of(names: Sequence[str]) -> set[str]:
    parts: set[str] = set()
    for name in reversed(names):
        parts |= _words_of(name)
        if len(parts) >= MOST_PARTS:
            break
    return {part for part in parts if len(part) >= SHORTEST_PART and not part.isdecimal()}


def _words_of(name: str) -> set[str]:
    words: Sequence[str] = _PARTS.findall(name.lower())
    return set(words) if len(words) > 1 else set()
