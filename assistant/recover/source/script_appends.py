"""What a batch script itself adds to a file of results, so that a second run would add it once more. Pure."""

from __future__ import annotations

from assistant.recover.shell.tree import TreeKind, Unread, all_commands, is_assigned, launched_words, plain_word, script_tree
from assistant.recover.source.finished_pieces import SPEAKS
from assistant.recover.source.reruns import is_log


def script_appends(script: str) -> str:
    """Return the line by which a script appends what a program prints to a file of results; empty where it appends to logs alone.

    With the errors of the program behind it, the file is a log of it.
    """
    try:
        commands = list(all_commands(script_tree(script)))
    except Unread:
        return ""
    for command in commands:
        words = launched_words([word for place, word in enumerate(command.words) if not is_assigned(command.words[: place + 1])])
        name = plain_word(words[0]).rpartition("/")[2] if words and command.kind == TreeKind.SIMPLE else ""
        errors = any(redirect.operator in ("&>>", ">&", "2>&1") or redirect.target in ("&1", "1") for redirect in command.redirects)
        for redirect in command.redirects:
            target = plain_word(redirect.target)
            if redirect.operator == ">>" and name and name not in SPEAKS and not errors and not is_log(target):
                return f"line {command.line} of its script appends to {target}"
    return ""
