"""Options and checks that several commands share."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, TypeVar

import typer

from assistant.errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve what the policy asks about; what it forbids stays forbidden.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would be done, and do nothing.")]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Print at most N.")]

ChoiceValue = TypeVar("ChoiceValue")


def one_of(name: str, choices: Mapping[str, ChoiceValue], kind: str, see: str) -> ChoiceValue:
    """Return the value of a name.

    Args:
        name: As the person wrote it.
        choices: All that there is.
        kind: The word for such a thing, for the message.
        see: The command that lists them.

    Raises:
        UsageError: There is none of that name; the message has the nearest ones.
    """
    if name in choices:
        return choices[name]
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known ones: {see}"
    raise UsageError(f"there is no {kind} {name!r}; {hint}")
