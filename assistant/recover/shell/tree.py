"""The structure of a shell script: its commands within loops, tests and chains, with the words as they are written. Pure.

A safe subset of bash, made for proofs: whoever meets anything else raises `Unread`, and what is not read proves nothing. Nothing is
filled in; `commands` does that where the values count and the structure does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = [
    "Link",
    "Statement",
    "TreeCommand",
    "TreeKind",
    "Unread",
    "all_commands",
    "fill_in",
    "is_assigned",
    "launched_words",
    "plain_word",
    "script_tree",
]

MOST_TOKENS = 20_000
MOST_INSIDE = 40
"""Groups within one another."""
MOST_FILLED, MOST_WORD = 4, 4_000
"""Variables within one another; letters of a word."""
OPERATORS = ("&&", "||", ";;", "&>>", "&>", "|&", ">>", "<<<", "<<", ">&", "<&", ">|", ";", "|", "&", ">", "<", "(", ")")
REDIRECTS = frozenset((">", ">>", ">|", "<", ">&", "<&", "<<<", "&>", "&>>"))
SEPARATORS = frozenset((";", "\n"))
LAUNCHERS = frozenset(("srun", "env", "nice", "timeout", "time", "exec", "ionice", "stdbuf", "command"))
"""Commands that only start another one."""
CLOSES = {"(": ")", "{": "}"}


class Unread(Exception):
    """Part of a script has a form that is not followed; `line` is 1-based."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line, self.why = line, why


class TreeKind:
    """Kinds of commands."""

    SIMPLE, LOOP, IF, GROUP, FUNCTION = "simple", "loop", "if", "group", "function"


class Redirect(NamedTuple):
    """Where a command's output goes, or its input comes from."""

    operator: str
    target: str


@dataclass
class TreeCommand:
    """One command, simple or compound."""

    kind: str
    line: int
    """1-based, where it begins."""
    words: list[str] = field(default_factory=list)
    """Of a simple one, as written; of a loop its variable and the words that it goes through; of a function its name."""
    test: list[Statement] = field(default_factory=list)
    """Of an `if`, or of a `while`."""
    body: list[Statement] = field(default_factory=list)
    alternative: list[Statement] = field(default_factory=list)
    """Behind `else`."""
    redirects: list[Redirect] = field(default_factory=list)


class Link(NamedTuple):
    """A pipeline of a chain."""

    operator: str
    """`&&` or `||` before it; empty for the first."""
    commands: list[TreeCommand]
    negated: bool = False


@dataclass
class Statement:
    """A chain of pipelines: `a | b && c || d`."""

    links: list[Link]
    line: int


class _Token(NamedTuple):
    text: str
    line: int
    is_word: bool


def script_tree(text: str) -> list[Statement]:
    """Return the statements of a script.

    Raises:
        Unread: A form of it is not followed: here-documents, `case`, background jobs, arrays and what is no shell.
    """
    return _Parser(list(_tokens(text))).script()


def all_commands(statements: list[Statement]) -> Iterator[TreeCommand]:
    """Yield the commands of statements and of all that stands within them, in order."""
    for statement in statements:
        for link in statement.links:
            for command in link.commands:
                yield command
                for inner in (command.test, command.body, command.alternative):
                    yield from all_commands(inner)


def fill_in(statements: list[Statement]) -> None:
    """Write what the script assigns to a variable once in the place of that, so that two names of one file are the same text.

    A variable that is assigned several times stands as it is.
    """
    values: dict[str, list[str]] = {}
    for command in all_commands(statements):
        for place, word in enumerate(command.words if command.kind == TreeKind.SIMPLE else ()):
            if is_assigned(command.words[: place + 1]):
                name, _, text = word.partition("=")
                values.setdefault(name.rstrip("+"), []).append(text)
    single = {name: plain_word(texts[0]) for name, texts in values.items() if len(texts) == 1 and not re.search(r"[`(]", texts[0])}

    def filled(word: str) -> str:
        plain = plain_word(word)
        for _ in range(MOST_FILLED):
            plain = re.sub(r"\$([A-Za-z_]\w*)", lambda match: single.get(match[1], match[0])[:MOST_WORD], plain)
        return plain[:MOST_WORD]

    for command in all_commands(statements):
        if command.kind == TreeKind.SIMPLE:
            written_words = command.words
            command.words = [
                word if is_assigned(written_words[: place + 1]) or "$(" in word else filled(word)
                for place, word in enumerate(written_words)
            ]
        command.redirects = [redirect._replace(target=filled(redirect.target)) for redirect in command.redirects]


def is_assigned(words: Sequence[str]) -> bool:
    """Tell whether the last of the first words of a command is an assignment, and all before it are."""
    return all(re.match(r"[A-Za-z_]\w*\+?=", word) for word in words)


def plain_word(word: str) -> str:
    """Return a word without quotes, and its variables without braces."""
    return re.sub(r"\$\{([A-Za-z_]\w*)\}", r"$\1", word.replace('"', "").replace("'", ""))


def launched_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command without what starts it: `srun -n 1 nice`."""
    words_left = list(words)
    while words_left and words_left[0].rpartition("/")[2] in LAUNCHERS:
        words_left = words_left[1:]
        while words_left and (
            words_left[0].startswith("-") or words_left[0].isdecimal() or re.fullmatch(r"\d+[smhd]|\w+=\S*", words_left[0])
        ):
            words_left = words_left[1:]
    return words_left


def _tokens(text: str) -> Iterator[_Token]:
    place, line, count = 0, 1, 0
    while place < len(text):
        count += 1
        if count > MOST_TOKENS:
            raise Unread(line, "the script is too long")
        letter = text[place]
        if text.startswith("\\\n", place):
            place, line = place + 2, line + 1
        elif letter in " \t\r":
            place += 1
        elif letter == "#":
            end = text.find("\n", place)
            place = end if end >= 0 else len(text)
        elif letter == "\n":
            yield _Token("\n", line, False)
            place, line = place + 1, line + 1
        elif operator := next((candidate for candidate in OPERATORS if text.startswith(candidate, place)), ""):
            if operator in ("<<", ";;", "|&"):
                raise Unread(line, f"`{operator}` is not followed")
            yield _Token(operator, line, False)
            place += len(operator)
        else:
            end = _word_end(text, place, line)
            yield _Token(text[place:end].replace("\\\n", ""), line, True)
            line += text.count("\n", place, end)
            place = end


def _word_end(text: str, place: int, line: int) -> int:
    """Return where a word ends; quotes and substitutions are part of it."""
    while place < len(text):
        letter = text[place]
        if letter == "\\":
            place += 2
        elif letter == "'":
            place = _closing_end(text, "'", place + 1, line)
        elif letter == '"':
            place = _quoted_end(text, place + 1, line)
        elif letter == "`":
            place = _closing_end(text, "`", place + 1, line)
        elif letter == "$" and text[place + 1 : place + 2] in ("(", "{"):
            place = _bracket_end(text, place + 1, line)
        elif letter in " \t\n;|&<>":
            return place
        elif letter in "()":
            if text[place - 1 : place + 1] == "=(":
                raise Unread(line, "an array is not followed")
            return place
        else:
            place += 1
    return place


def _closing_end(text: str, end: str, place: int, line: int) -> int:
    end_place = text.find(end, place)
    if end_place < 0:
        raise Unread(line, f"no {end} closes what is opened there")
    return end_place + 1


def _quoted_end(text: str, place: int, line: int) -> int:
    while place < len(text):
        if text[place] == "\\":
            place += 2
        elif text[place] == '"':
            return place + 1
        elif text[place] == "$" and text[place + 1 : place + 2] in ("(", "{"):
            place = _bracket_end(text, place + 1, line)
        else:
            place += 1
    raise Unread(line, "no quote closes what is opened there")


def _bracket_end(text: str, place: int, line: int) -> int:
    opened, closed, depth = text[place], CLOSES[text[place]], 0
    while place < len(text):
        letter = text[place]
        if letter == "\\":
            place += 1
        elif letter == "'":
            place = _closing_end(text, "'", place + 1, line) - 1
        elif letter == '"':
            place = _quoted_end(text, place + 1, line) - 1
        depth += (letter == opened) - (letter == closed)
        place += 1
        if depth == 0:
            return place
    raise Unread(line, f"no {closed} closes what is opened there")


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens, self.place, self.depth = tokens, 0, 0

    def script(self) -> list[Statement]:
        statements = self._list(frozenset())
        if self.place < len(self.tokens):
            raise Unread(self._line(), f"`{self.tokens[self.place].text}` is not followed")
        return statements

    def _peek(self) -> _Token | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def _line(self) -> int:
        token = self._peek() or (self.tokens[-1] if self.tokens else _Token("", 1, False))
        return token.line

    def _is(self, *texts: str) -> bool:
        token = self._peek()
        return token is not None and token.text in texts

    def _take(self, *texts: str) -> _Token:
        token = self._peek()
        if token is None or (texts and token.text not in texts):
            raise Unread(self._line(), f"no `{' or '.join(texts)}` stands where one is due")
        self.place += 1
        return token

    def _blank(self) -> None:
        while self._is(*SEPARATORS):
            self.place += 1

    def _list(self, ends: frozenset[str]) -> list[Statement]:
        self.depth += 1
        if self.depth > MOST_INSIDE:
            raise Unread(self._line(), "its groups stand too deep within one another")
        statements = []
        self._blank()
        while (token := self._peek()) is not None and token.text not in ends:
            statements.append(self._statement())
            if self._is("&"):
                raise Unread(self._line(), "a command in the background is not followed")
            self._blank()
        self.depth -= 1
        return statements

    def _statement(self) -> Statement:
        line, links, operator = self._line(), [], ""
        while True:
            negated = self._is("!") and bool(self._take("!"))
            commands = [self._command()]
            while self._is("|"):
                self._take("|")
                self._blank()
                commands.append(self._command())
            links.append(Link(operator, commands, negated))
            if not self._is("&&", "||"):
                return Statement(links, line)
            operator = self._take("&&", "||").text
            self._blank()

    def _command(self) -> TreeCommand:
        token = self._peek()
        if token is None:
            raise Unread(self._line(), "a command is missing")
        compound = {
            "for": self._for,
            "while": self._while,
            "until": self._while,
            "if": self._if,
            "{": self._group,
            "(": self._group,
        }
        if token.text in compound:
            command = compound[token.text]()
            self._redirects(command)
            return command
        if token.text in ("case", "select", "function", "coproc", "[[[") or not token.is_word:
            raise Unread(token.line, f"`{token.text}` is not followed")
        command = TreeCommand(TreeKind.SIMPLE, token.line)
        while (token := self._peek()) is not None:
            if token.is_word and token.text.isdecimal() and self._redirect_follows():
                self._take()
            elif token.is_word:
                command.words.append(self._take().text)
            elif token.text in REDIRECTS:
                self._redirect(command)
            elif token.text == "(" and len(command.words) == 1 and not command.redirects:
                return self._function(command)
            elif token.text in ("(", ")") and command.words[:1] == ["[["]:
                command.words.append(self._take().text)
            else:
                break
            inside = command.words[:1] == ["[["] and command.words[-1:] != ["]]"]
            if inside and self._is("&&", "||", "<", ">"):
                command.words.append(self._take().text)
        return command

    def _redirect_follows(self) -> bool:
        after = self.tokens[self.place + 1] if self.place + 1 < len(self.tokens) else None
        return after is not None and after.text in REDIRECTS and after.text not in ("&>", "&>>") and self._adjacent()

    def _adjacent(self) -> bool:
        return self.tokens[self.place].text in ("0", "1", "2")

    def _redirect(self, command: TreeCommand) -> None:
        operator = self._take().text
        target = self._take()
        if not target.is_word:
            raise Unread(target.line, "a redirection without a target is not followed")
        command.redirects.append(Redirect(operator, target.text))

    def _redirects(self, command: TreeCommand) -> None:
        while (token := self._peek()) is not None and (
            token.text in REDIRECTS or (token.text.isdecimal() and self._redirect_follows())
        ):
            if token.is_word:
                self._take()
            self._redirect(command)

    def _function(self, command: TreeCommand) -> TreeCommand:
        self._take("(")
        self._take(")")
        self._blank()
        group = self._group()
        return TreeCommand(TreeKind.FUNCTION, command.line, command.words, body=group.body)

    def _group(self) -> TreeCommand:
        opened = self._take("{", "(")
        closed = CLOSES[opened.text]
        body = self._list(frozenset((closed,)))
        self._take(closed)
        return TreeCommand(TreeKind.GROUP, opened.line, body=body)

    def _for(self) -> TreeCommand:
        line = self._take("for").line
        words = [self._take().text]
        if not re.fullmatch(r"[A-Za-z_]\w*", words[0]):
            raise Unread(line, "a loop that counts is not followed")
        self._blank()
        if self._is("in"):
            self._take("in")
            while (token := self._peek()) is not None and token.is_word:
                words.append(self._take().text)
        return TreeCommand(TreeKind.LOOP, line, words, body=self._do())

    def _while(self) -> TreeCommand:
        line = self._take("while", "until").line
        test = self._list(frozenset(("do",)))
        return TreeCommand(TreeKind.LOOP, line, [], test=test, body=self._do())

    def _do(self) -> list[Statement]:
        self._blank()
        self._take("do")
        body = self._list(frozenset(("done",)))
        self._take("done")
        return body

    def _if(self) -> TreeCommand:
        line = self._take("if", "elif").line
        test = self._list(frozenset(("then",)))
        self._take("then")
        body = self._list(frozenset(("elif", "else", "fi")))
        alternative: list[Statement] = []
        if self._is("elif"):
            inner = self._if()
            return TreeCommand(TreeKind.IF, line, test=test, body=body, alternative=[Statement([Link("", [inner])], inner.line)])
        if self._is("else"):
            self._take("else")
            alternative = self._list(frozenset(("fi",)))
        self._take("fi")
        return TreeCommand(TreeKind.IF, line, test=test, body=body, alternative=alternative)
