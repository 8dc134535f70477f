"""Which branch of an `if` of a shell script a run would take, by the tests of files in it. Pure: the caller answers the tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

FileTest = Callable[[str, str], bool | None]
"""Tells whether `[ -f PATH ]` holds: from the letter of the test and the absolute path; None where that cannot be told."""
FILE_TEST = re.compile(r"-[defhLrs]")


class Branches:
    """Follows `if`, `elif`, `else` and `fi` and tells whether a run would come to a command; nested ones count."""

    def __init__(self, exists: FileTest | None, resolve: Callable[[str], str]) -> None:
        self.exists, self.resolve = exists, resolve
        self.stack: list[_Branch] = []

    @property
    def taken(self) -> bool:
        """Whether what stands here is run, as far as that can be told."""
        return all(branch.taken for branch in self.stack)

    def keyword(self, word: str) -> None:
        """Note a keyword at the beginning of a command."""
        if word == "if":
            self.stack.append(_Branch())
        elif not self.stack:
            return
        elif word == "fi":
            self.stack.pop()
        elif word == "then":
            self.stack[-1].then()
        elif word in ("elif", "else"):
            self.stack[-1].otherwise(condition=word == "elif")

    def command(self, words: list[str]) -> None:
        """Note a whole command; one between `if` and `then` is a condition."""
        if self.stack and self.stack[-1].asking:
            self.stack[-1].tests.append(self._holds([word for word in words if word not in ("if", "elif", "then")]))

    def _holds(self, words: list[str]) -> bool | None:
        plain = [word for word in words if word not in ("[", "[[", "]", "]]", "test")]
        wanted = True
        while plain and plain[0] == "!":
            plain, wanted = plain[1:], not wanted
        if self.exists is None or len(plain) != 2 or len(words) == len(plain) or not FILE_TEST.fullmatch(plain[0]):
            return None
        path = self.resolve(plain[1])
        if not path.startswith("/") or any(letter in path for letter in "*?["):
            return None
        answer = self.exists(plain[0][1], path)
        return None if answer is None else answer is wanted


@dataclass(slots=True)
class _Branch:
    """One `if` and where in it the reader is."""

    asking: bool = True
    """Between `if` or `elif` and `then`."""
    tests: list[bool | None] = field(default_factory=list)
    taken: bool = True
    over: bool = False
    """Whether a branch before this one was surely taken."""
    decided: bool = True
    """Whether all conditions so far could be told."""

    def then(self) -> None:
        answer = self.tests[0] if len(self.tests) == 1 else None
        self.asking = False
        self.taken = not self.over and answer is not False
        self.over = self.over or (answer is True and self.decided)
        self.decided = self.decided and answer is not None

    def otherwise(self, *, condition: bool) -> None:
        self.asking, self.tests, self.taken = condition, [], not self.over
