"""How the frameworks resume whose training programs are installed and cannot be read beside the job: by `framework_rules`.

Where a configuration that may decide cannot be read, the answer is that it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.recover.job_program import CONFIGS, JobProgram, Option
from assistant.recover.resume.framework_rules import RULES, FrameworkRule, Row
from assistant.recover.resume.means import NO, ResumeMeans, ResumeWay, by_text
from assistant.recover.shell.folders import UNRESOLVED

COMMAND_WORDS = 14
"""Words of a launch among which its command stands: `srun` and `torchrun` come with options of their own."""
CONFIG_OPTION = re.compile(r"conf|cfg|recipe|args|yaml")
OTHER_CONFIG = re.compile(r"deepspeed|^ds_|fsdp|accelerate|model|token|data|eval|lora|peft|wandb|quant")
"""Options that name files which say nothing about checkpoints."""
SLOT = re.compile(r"\{(@?)([^{}:]+)(?::([^{}]*))?\}")


class _Condition(NamedTuple):
    """One condition of a row."""

    holds: bool
    option: Option | None
    """What was given of it."""
    name: str
    """The option that a configuration which cannot be read might set; empty where none could."""


def installed_trainer(program: JobProgram) -> ResumeWay | None:
    """Return how the program of a framework resumes; None where it is none of these or its options do not tell."""
    for rule in RULES:
        if _is_of(program, rule):
            return _way(program, rule)
    return None


def installed_folders(program: JobProgram) -> Iterator[Option]:
    """Yield the folders that frameworks make up from several options, or take where none is named."""
    for rule in RULES:
        if not rule.folders or not _is_of(program, rule):
            continue
        # a default counts only where no configuration that cannot be read may say otherwise
        defaults = not _unread(program, rule)
        for filled, path in (_filled(program, template, defaults=defaults) for template in rule.folders):
            if filled and UNRESOLVED not in filled:
                yield Option("folder", filled, f"{path or 'default'}, {rule.name}'s form")
            if filled:
                break


def _is_of(program: JobProgram, rule: FrameworkRule) -> bool:
    """Tell whether a program is a framework's."""
    imports = _imports(program, rule.imports)
    if rule.runs and not re.search(rule.runs, _command(program)):
        if not (rule.imports and imports):
            return False
    elif rule.imports and imports is False:
        return False
    if not rule.runs and imports is None and not any(name.startswith("=") and name != "=imports" for name in rule.options):
        return False
    return all(_told(program, name, imports) for name in rule.options)


def _told(program: JobProgram, name: str, imports: bool | None) -> bool:
    if name.startswith("="):
        names = name[1:].split("|")
        return ("imports" in names and bool(imports)) or any(
            program.option(name) is not None for name in names if name != "imports"
        )
    return _condition(program, name).holds


def _imports(program: JobProgram, library: str) -> bool | None:
    """Tell whether a program imports a library; None where it cannot be read."""
    parsed = [source for source in program.sources if source.parsed]
    if not library or not parsed:
        return None
    return any(module.partition(".")[0] == library for source in parsed for module in source.modules)


def _command(program: JobProgram) -> str:
    words = program.launch.words
    command_words = words[:COMMAND_WORDS]
    program_word = f" {program.launch.program} " if program.launch.program and program.launch.program not in command_words else ""
    return f" {' '.join(command_words)} {program_word}"


def _way(program: JobProgram, rule: FrameworkRule) -> ResumeWay:
    unread = _unread(program, rule)
    open_names: list[str] = []
    for row in rule.rows:
        conditions = [_condition(program, text) for text in row.when]
        open_names += [condition.name for condition in conditions if condition.option is None and condition.name]
        if all(condition.holds for condition in conditions):
            break
    else:
        return ResumeWay(ResumeMeans.UNKNOWN, f"{rule.name} is in no state that is known")
    way = _of_row(program, row, next((condition.option for condition in conditions if condition.option is not None), None))
    if unread and open_names and way.means not in (ResumeMeans.NONE, ResumeMeans.UNKNOWN):
        return ResumeWay(ResumeMeans.UNKNOWN, f"{unread} cannot be read, and may set {open_names[0]}")
    return way


def _of_row(program: JobProgram, row: Row, option: Option | None) -> ResumeWay:
    by = row.by.replace("{where}", option.where if option is not None else "")
    if row.means is None:
        way = by_text(option.value, by) if option is not None else ResumeWay(ResumeMeans.UNKNOWN, by)
    else:
        way = ResumeWay(row.means, by, _filled(program, row.path)[0] if row.path else "", row.prefix)
    if way.means is ResumeMeans.FIXED and (not way.path or UNRESOLVED in way.path):
        return ResumeWay(ResumeMeans.UNKNOWN, f"{by}: which one is not known")
    return ResumeWay(way.means, way.by, way.path, way.prefix, destroys=row.destroys, steered=row.steered)


def _condition(program: JobProgram, text: str) -> _Condition:
    """Judge one condition, as `framework_rules` describes them."""
    negative = text.startswith("!")
    text = text.removeprefix("!")
    if text.startswith("$"):
        return _Condition((program.launch.variables.get(text[1:], "").lower() not in NO) != negative, None, "")
    if text.startswith("/"):
        holds_text = text[1:] in _command(program) or any(text[1:] in source.text for source in program.sources)
        return _Condition(holds_text != negative, None, "")
    match = re.fullmatch(r"=?([\w.]+)(?:(!?=)([^=]*)|(#))?", text)
    if match is None:
        raise ValueError(f"no condition: {text!r}")
    option = program.option(match[1])
    value = option.value.strip().lower() if option is not None else ""
    holds = option is not None and value not in NO
    if match[4]:  # a path that ends in a number: one checkpoint
        holds = PurePosixPath(value).name.isdecimal()
    elif match[2] == "=":
        holds = option is not None and (value in match[3].split("|"))
    elif match[2] == "!=":
        holds = holds and value != match[3]
    elif text.startswith("="):
        holds = option is not None
    return _Condition(holds != negative, option if holds and not negative else None, "" if option is not None else match[1])


def _filled(program: JobProgram, template: str, *, defaults: bool = True) -> tuple[str, str]:
    """Return a template with the values of its options, and where the first was given; empty where one is missing."""
    where, missing = "", False

    def value(match: re.Match[str]) -> str:
        nonlocal where, missing
        for name in match[2].split("|"):
            look = _pair if match[1] else _variable if name.startswith("$") else JobProgram.option
            option = look(program, name)
            if option is not None and option.value not in ("", "null", "true", "false"):
                where = where or option.where
                return option.value
        missing = missing or match[3] is None or not defaults
        return match[3] or ""

    filled = SLOT.sub(value, template)
    return ("", "") if missing else (filled, where)


def _pair(program: JobProgram, name: str) -> Option | None:
    """Return a setting that stands as two words, as yacs has them: `OUTPUT_DIR /ckpt/a`."""
    words = program.launch.arguments
    place = words.index(name) + 1 if name in words else len(words)
    return Option(name.lower(), words[place], f"{name} on the command line") if place < len(words) else None


def _variable(program: JobProgram, name: str) -> Option | None:
    value = program.launch.variables.get(name[1:], "")
    return Option(name[1:].lower(), value, f"{name} in the script") if value else None


def _unread(program: JobProgram, rule: FrameworkRule) -> str:
    """Return a configuration file on the command line of which nothing is known and that may say how it resumes."""
    files_read = {option.where.rpartition(" in ")[2] for option in program.options}
    words = program.launch.arguments
    for place, word in enumerate(words):
        name, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        before = words[place - 1] if place else ""
        option = name if equals else before if before.startswith("-") and "=" not in before else ""
        if option and (not CONFIG_OPTION.search(option) or OTHER_CONFIG.search(option.lstrip("-"))):
            continue
        value = value if equals or not word.startswith("-") else ""
        hydra = bool(option) and option.endswith("config-name") and value != ""
        file = Path(value if not hydra or value.endswith(".yaml") else f"{value}.yaml")
        if file.suffix not in CONFIGS or file.name in files_read or "=" in value:
            continue
        if not (rule.own_configs and re.fullmatch(rule.own_configs, file.name)):
            return str(file)
    return ""
