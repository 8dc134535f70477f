"""Which branch of an `if` of a shell script a run would take, by the tests of files in it. Pure: the caller answers the tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

FileTest = Callable[[str, str], bool | None]
"""Tells whether `[ -f PATH ]` holds: from the letter of the test and the absolute path; None where that cannot be told."""
UNRESOLVED = "\ufffc"
"""As in `shell_words`, which imports this file."""
FILE_TEST = re.compile(r"-[defhLrs]")


class Branches:
    """Follows `if`, `elif`, `else` and `fi` and tells whether a run would come to a command; nested ones count."""

    def __init__(self, exists: FileTest | None, resolve: Callable[[str], str]) -> None:
        self.exists, self.resolve = exists, resolve
        self.stack: list[_Branch] = []
        self.cases = 0

    @property
    def taken(self) -> bool:
        """Whether what stands here is run, as far as that can be told."""
        return all(branch.taken for branch in self.stack)

    @property
    def sure(self) -> bool:
        """Whether what stands here is run in any case: under no test that cannot be told, and in no `case`."""
        return not self.cases and all(branch.sure for branch in self.stack)

    def keyword(self, word: str) -> None:
        """Note a keyword at the beginning of a command."""
        if word == "case":
            self.cases += 1
        elif word == "esac":
            self.cases = max(0, self.cases - 1)
        elif word == "if":
            self.stack.append(_Branch())
        elif not self.stack:
            return
        elif word == "fi":
            self.stack.pop()
        elif word == "then":
            self.stack[-1].then()
        elif word in ("elif", "else"):
            self.stack[-1].otherwise(condition=word == "elif")

    def command(self, words: list[str], joint: str = "") -> None:
        """Note a whole command, and the operator before it; one between `if` and `then` is a condition."""
        if self.stack and self.stack[-1].asking:
            tests, answer = self.stack[-1].tests, self._holds([word for word in words if word not in ("if", "elif", "then")])
            if tests and joint in ("&&", "||"):
                tests[-1] = _both(tests[-1], answer, decides=joint == "||")
            else:
                tests.append(answer)

    def _holds(self, words: list[str]) -> bool | None:
        plain = [word for word in words if word not in ("[", "[[", "]", "]]", "test")]
        wanted = True
        while plain and plain[0] == "!":
            plain, wanted = plain[1:], not wanted
        if self.exists is None or len(plain) not in (2, 3) or any(UNRESOLVED in word for word in plain):
            return None
        if (len(plain) == 3 or plain[0] in ("-n", "-z")) and len(words) <= 5:
            answer = _text_test(plain)
            return None if answer is None else answer is wanted
        if len(plain) != 2 or len(words) == len(plain) or not FILE_TEST.fullmatch(plain[0]):
            return None
        path = self.resolve(plain[1])
        if not path.startswith("/") or any(letter in path for letter in "*?["):
            return None
        answer = self.exists(plain[0][1], path)
        return None if answer is None else answer is wanted


def _both(first: bool | None, second: bool | None, *, decides: bool) -> bool | None:
    """Return what two tests come to: with `||` one that holds decides, with `&&` one that does not."""
    if decides in (first, second):
        return decides
    return None if None in (first, second) else not decides


def _text_test(words: list[str]) -> bool | None:
    """Answer `-n TEXT`, `-z TEXT` and `TEXT = TEXT`; None for any other test."""
    if len(words) == 2:
        return bool(words[1]) is (words[0] == "-n")
    left, sign, right = words
    if sign not in ("=", "==", "!=") or any(letter in right for letter in "*?["):
        return None
    return (left == right) is (sign != "!=")


@dataclass(slots=True)
class _Branch:
    """One `if` and where in it the reader is."""

    asking: bool = True
    """Between `if` or `elif` and `then`."""
    tests: list[bool | None] = field(default_factory=list)
    taken: bool = True
    sure: bool = True
    """Whether it is run in any case."""
    over: bool = False
    """Whether a branch before this one was surely taken."""
    decided: bool = True
    """Whether all conditions so far could be told."""

    def then(self) -> None:
        answer = self.tests[0] if len(self.tests) == 1 else None
        self.asking = False
        self.taken = not self.over and answer is not False
        self.sure = self.taken and self.decided and answer is True
        self.over = self.over or (answer is True and self.decided)
        self.decided = self.decided and answer is not None

    def otherwise(self, *, condition: bool) -> None:
        self.asking, self.tests, self.taken = condition, [], not self.over
        self.sure = self.taken and self.decided
