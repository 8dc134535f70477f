"""What the value of an option that names a checkpoint may be: a path, a number, or a name below a folder. Pure.

An option that is declared to be a number takes no path, and its help says what it is meant to name. Where neither does, all are
likely: a trial start tells which of them leads to the checkpoint.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from assistant.recover.job_program import JobProgram
from assistant.recover.trainer_source import dotted, syntax_tree

PATH, STEP, NAME = "{checkpoint}", "{step}", "{name}"
OF_A_NAME = re.compile(
    r"\btags?\b|\bsub-?(?:folder|directory|dir)\b|\b(?:below|under|inside|within|relative to)\b|\bname of\b", re.IGNORECASE
)
OF_A_STEP = re.compile(r"\b(?:step|iteration|iter|epoch|update)s?(?: number)?\b", re.IGNORECASE)
OF_A_PATH = re.compile(r"\bpath\b|\bfile\b|\bfolder\b|\bdirectory\b|\.(?:pt|pth|ckpt|npz|bin)\b|/", re.IGNORECASE)
NAMES_A_STEP = re.compile(r"(?:^|_)(?:step|iter|iteration|epoch|update|batch)s?(?:$|_)", re.IGNORECASE)
NAMES_A_NAME = re.compile(r"(?:^|_)(?:tag|name)(?:$|_)", re.IGNORECASE)


def value_templates(programs: Sequence[JobProgram], option: str, variable: str) -> tuple[str, ...]:
    """Return what may stand for a checkpoint in an option or a variable, the most likely first.

    Args:
        programs: What a script starts.
        option: That the variable reaches, normalised; empty where its program reads the variable itself.
        variable: Its name.
    """
    for program in programs:
        for source in program.sources:
            for call in source.called("add_argument", "option") if option else ():
                flags = [node.value for node in call.positional if isinstance(node, ast.Constant) and isinstance(node.value, str)]
                if not any(flag.lstrip("-").replace("-", "_").lower() == option for flag in flags):
                    continue
                if dotted(call.keywords.get("type", ast.Constant(None))) == "int":
                    return (STEP,)
                explanation = source.value(call.keywords.get("help"))
                return _by_words(explanation if isinstance(explanation, str) else "", f"{option}")
            if not option and source.parsed and is_made_a_number(source.text, variable):
                return (STEP,)
    return _by_words("", option or variable)


def _by_words(explanation: str, name: str) -> tuple[str, ...]:
    """Return the templates by what the help of an option says, else by its name."""
    if OF_A_NAME.search(explanation) or (not explanation and NAMES_A_NAME.search(name)):
        return (NAME, PATH, STEP)
    if OF_A_PATH.search(explanation):
        return (PATH, NAME)
    if OF_A_STEP.search(explanation) or NAMES_A_STEP.search(name):
        return (STEP, NAME)
    return (PATH, NAME, STEP)


def is_made_a_number(text: str, variable: str) -> bool:
    """Tell whether a program makes a number of a variable of its environment: `int(os.environ.get("RESTORE_STEP", 0))`."""
    for node in ast.walk(syntax_tree(text)):
        arguments = node.args[:1] if isinstance(node, ast.Call) and dotted(node.func) == "int" else []
        inner = (part for argument in arguments for part in ast.walk(argument))
        if any(isinstance(part, ast.Constant) and part.value == variable for part in inner):
            return True
    return False
