"""Commands of a suite: templates whose values never meet a shell, and the command lines of known evaluators.

A template is split into words first and filled in afterwards, so a value with blanks or quotes stays one word. `{{x}}` stands for
`{x}` itself; braces around anything but a name, as in JSON, stay as they are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from assistant.errors import ContentError

NAME = re.compile(r"\{\{(\w+)\}\}|\{([a-z_]+)\}")


def argv(template: str, values: Mapping[str, str], where: str) -> list[str]:
    """Return the words of a command.

    Args:
        template: As a shell would read it, without its substitutions.
        values: By name.
        where: What it is the command of, for the message.

    Raises:
        ContentError: It is no command, or names a value that there is none of.
    """
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ContentError(f"{where}: {template!r} is no command line: {error}") from error
    if not words:
        raise ContentError(f"{where}: the command is empty")

    def filled(match: re.Match[str]) -> str:
        if match.group(1):
            return f"{{{match.group(1)}}}"
        if match.group(2) not in values:
            raise ContentError(f"{where}: {{{match.group(2)}}} is unknown; known: {', '.join(f'{{{name}}}' for name in values)}")
        return values[match.group(2)]

    return [NAME.sub(filled, word) for word in words]
