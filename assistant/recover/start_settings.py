"""The values that a start of a program can be given: options of argparse, and globals that a configurator takes from `--key=value`.

Of nanoGPT and its kin: `exec(open("configurator.py").read())` runs a file that sets the globals of the program. Pure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from assistant.processes import NAME as VARIABLE_NAME
from assistant.recover.declared_options import UNKNOWN
from assistant.recover.job_program import JobProgram
from assistant.recover.lost_environment import key_read
from assistant.recover.option_kinds import is_made_a_number
from assistant.recover.restart import NOT_SAFE, VARIABLE
from assistant.recover.trainer_source import UNPARSED, dotted, syntax_tree

Read = Callable[[str], str | None]
QUOTED = re.compile(r"['\"](\w[\w.-]{0,40})['\"]")
KNOWN_TYPES = (bool, int, float, str)


class StartSetting(NamedTuple):
    """A value that a start can be given."""

    key: str
    """As the source names it."""
    flag: str
    """As the command line writes it: `--resume-from`."""
    value: Any
    """What it has now; None where it has none, UNKNOWN where that is not known."""
    kind: type
    """Of what it takes."""
    alone: bool = False
    """Whether its flag takes no value."""
    quoted: bool = False
    """Whether its text has to be a literal of Python, with its quotes: the program evaluates it."""
    words: tuple[str, ...] = ()
    """The values that its declaration, a comment behind it or a comparison names."""
    variable: bool = False
    """Whether it is a variable of the environment; its flag is its name."""
    passed: bool = False
    """Whether the command line of the program gives it a value."""

    def assignment(self, text: str) -> str:
        """Return the word that gives it a value; of a template the places stay."""
        if self.alone:
            return self.flag
        return f"{self.flag}='{text}'" if self.quoted and self.kind is str else f"{self.flag}={text}"


def start_settings(program: JobProgram, read: Read) -> dict[str, StartSetting]:
    """Return the values that a start can be given, by the names that the source reads them by.

    Args:
        program: Of a job's script.
        read: Reads with the rights of its owner.

    Raises:
        Unavailable: The storage did not answer.
    """
    return {**_variables(program), **_globals(program, read), **_declared(program)}


def variable_key(name: str) -> str:
    """Return the name under which a variable of the environment stands among the settings."""
    return f"${name}"


def _variables(program: JobProgram) -> dict[str, StartSetting]:
    """Return the variables of its environment that a program reads; one that a restart of ours set counts as not set."""
    variables: dict[str, StartSetting] = {}
    for source in program.sources:
        own = [name for name in source.environment.get(VARIABLE, "").split(",") if name]
        for node in ast.walk(syntax_tree(source.text)) if source.parsed else ():
            name = source.value(key_read(source, node))
            if not isinstance(name, str) or not VARIABLE_NAME.fullmatch(name):
                continue
            default = source.value(node.args[1]) if isinstance(node, ast.Call) and len(node.args) > 1 else None
            value = source.environment.get(name, default) if name not in own else default
            kind = int if is_made_a_number(source.text, name) else str
            typed = _typed(value, kind) if isinstance(value, str) else value
            variables.setdefault(variable_key(name), StartSetting(variable_key(name), name, typed, kind, variable=True))
    return variables


def _declared(program: JobProgram) -> dict[str, StartSetting]:
    """Return the options of argparse that take one plain value, or none, by the names that the source reads them by."""
    declared: dict[str, StartSetting] = {}
    for source in program.sources:
        for call in source.called("add_argument"):
            names = [node.value for node in call.positional if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            flag = next((name for name in names if name.startswith("--")), "")
            action = source.value(call.keywords["action"]) if "action" in call.keywords else "store"
            if not flag or NOT_SAFE.search(flag) or action not in ("store", "store_true") or "nargs" in call.keywords:
                continue
            dest = source.value(call.keywords.get("dest"))
            key = dest if isinstance(dest, str) else flag.lstrip("-").replace("-", "_")
            name = dotted(call.keywords["type"]) if "type" in call.keywords else "str"
            kind = {"int": int, "str": str, "float": float, "Path": str, "pathlib.Path": str}.get(name)
            if kind is None:
                continue
            choices = call.keywords.get("choices")
            words = [source.value(item) for item in choices.elts] if isinstance(choices, ast.List | ast.Tuple) else []
            explanation = source.value(call.keywords.get("help"))
            words += QUOTED.findall(explanation) if isinstance(explanation, str) else []
            is_flag = action == "store_true"
            value = source.options.get(key, UNKNOWN)
            declared[key] = StartSetting(
                key,
                flag,
                _typed(value, int) if kind is int and isinstance(value, str) else value,
                bool if is_flag else kind,
                alone=is_flag,
                words=tuple(word for word in words if isinstance(word, str)),
                passed=any(word.partition("=")[0] == flag for word in source.arguments),
            )
    return declared


def _globals(program: JobProgram, read: Read) -> dict[str, StartSetting]:
    """Return the globals of a program that its configurator takes from `--key=value`: `exec(open("configurator.py").read())`."""
    source = program.source
    if source is None or not source.parsed:
        return {}
    run = next(
        (node for node in ast.walk(syntax_tree(source.text)) if isinstance(node, ast.Call) and dotted(node.func) == "exec"), None
    )
    texts = [node.value for node in ast.walk(run) if isinstance(node, ast.Constant)] if run is not None else []
    names = [text for text in texts if isinstance(text, str) and text.endswith(".py")]
    if run is None or len(names) != 1:
        return {}
    paths = dict.fromkeys(
        str(PurePosixPath(folder) / names[0]) for folder in (program.launch.folder, PurePosixPath(source.path).parent)
    )
    text = next((text for path in paths if (text := read(path))), "")
    evaluates = _configurator(text)
    if evaluates is None:
        return {}
    lines = source.text.splitlines()
    declared: dict[str, StartSetting] = {}
    for statement in syntax_tree(source.text).body:
        if statement.lineno >= run.lineno:
            break
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if (
            not isinstance(target, ast.Name)
            or not isinstance(statement, ast.Assign)
            or not isinstance(statement.value, ast.Constant)
        ):
            continue
        kind = type(statement.value.value)
        comment = lines[statement.lineno - 1].partition("#")[2]
        if kind in KNOWN_TYPES and not target.id.startswith("_"):
            option = program.option(target.id)
            value = _typed(option.value, kind) if option is not None else statement.value.value
            words = tuple(QUOTED.findall(comment))
            is_passed = option is not None and option.where.endswith("on the command line")
            declared[target.id] = StartSetting(
                target.id, f"--{target.id}", value, kind, quoted=evaluates, words=words, passed=is_passed
            )
    return declared


def _configurator(text: str) -> bool | None:
    """Return whether a configurator evaluates what it is given; None where it is none whose way is known.

    One that runs each word as code, or builds code of it, is none: what it would do with a path is not known.
    """
    try:
        tree = syntax_tree(text)
    except UNPARSED:
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    takes_words = re.search(r"\bsys\.argv\[1:\]", text) is not None
    apart = any(
        dotted(call.func).rpartition(".")[2] in ("split", "partition")
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and call.args[0].value == "="
        for call in calls
    )
    sets = re.search(r"\bglobals\(\)\[\w+\]\s*=[^=]", text) is not None
    runs = [call for call in calls if dotted(call.func) == "exec" and "open(" not in ast.unparse(call)]
    if not (takes_words and apart and sets) or runs:
        return None
    return any(dotted(call.func) == "eval" for call in calls)


def _typed(text: str, kind: type) -> Any:
    """Return the value of a text that a configuration or the command line holds, as its type."""
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), UNKNOWN)
    try:
        return kind(text.strip("'\"") if kind is str else text)
    except ValueError:
        return UNKNOWN
