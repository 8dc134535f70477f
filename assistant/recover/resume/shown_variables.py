"""Variables of the submission by which a run may go on, as its owner shows them: `STATE=states/step_0040.lbm sbatch run.sh`.

Read are the comments and usage texts of the script, and the books and makefiles beside it that only their owner may write, and of
them a line that submits or starts the very same script, with nothing else in it that a shell would do, and that speaks of no
opposite: assignments in front of the command, and in `--export=ALL,STATE=…`. What stands for the checkpoint must look like one that
lies there, or like a step. A program or a script that takes a variable first and looks for the newest only without it
(`os.environ.get("STATE") or max(…)`, `${STATE:-$(ls -t …)}`) says so itself. Nothing is proven by that: a trial start does it, with
the chosen checkpoint in the place of the example.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from assistant.records import Job
from assistant.recover.checkpoints.names import name_form
from assistant.recover.job_program import FileReader, JobProgram
from assistant.recover.resume.documented import (
    BOOKS,
    COMMAND,
    MAKEFILES,
    NAMED_PLACE,
    OPPOSITE,
    REMOVES,
    SPEAKS_OF_IT,
    folder_of_documents,
    is_owners_own,
    is_the_script,
    texts_of,
)
from assistant.recover.resume.script_variable import counts_for_a_step, names_a_checkpoint
from assistant.recover.shell.folders import listed_folder
from assistant.recover.source.newest_choice import LISTS
from assistant.recover.source.settings import key_read
from assistant.recover.source.trainer_source import UNPARSED, TrainerSource, dotted, syntax_tree
from assistant.schedulers.slurm_spec import exports_plainly

LONGEST_LINE = 1000
MOST_SHOWN = 4
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w{1,60})=(?P<value>.{1,200})")
IN_A_SHELL = re.compile(r"[;|&<>$`(){}\\*?!]")
"""What makes more of a line than one plain command."""
TO_FILL_IN = re.compile(r"<[\w ./-]{1,60}>")
EXPORTS = re.compile(r"--export=(?P<items>[^\s\"'`]{1,300})")
SPEAKS = re.compile(r"(?:echo|printf|cat)\b")
FILE = re.compile(r"(?=.*[A-Za-z])[\w./-]{1,200}")
TEXT_FORMS = frozenset(".json .jsonl .yaml .yml .toml .txt .cfg .ini .conf .csv .tsv .log .md .py .sh".split())
IN_SHELL = re.compile(r"\$\{(?P<name>[A-Za-z_]\w{1,60}):?-[\"']?\$\(\s*(?:ls|find)\b")


def shown_variables(job: Job, programs: Sequence[JobProgram], read: FileReader) -> tuple[str, ...]:
    """Return assignments, with `{checkpoint}`, `{name}` or `{step}`, by which a run may go on, likeliest first.

    Args:
        job: With its spec.
        programs: What its script starts.
        read: Reads with its owner's rights.

    Raises:
        Unavailable: The storage did not answer.
    """
    spec = job.spec
    if spec is None:
        return ()
    examples: dict[str, tuple[str, ...]] = {}
    for line, around in _telling_lines(job, read):
        if not SPEAKS_OF_IT.search(around) or OPPOSITE.search(around):
            continue
        templates_by_name = {name: _templates(job, name, value) for name, value in _assignments(job, line, read)}
        if all(templates_by_name.values()):  # what sets more than a checkpoint may do more than go on from it
            examples = {**templates_by_name, **examples}
    code = "\n".join(line for line in spec.script.splitlines() if not line.lstrip().startswith("#"))
    own = [match["name"] for match in IN_SHELL.finditer(code)]
    own += [name for program in programs for source in program.sources for name in _put_before_a_listing(source)]
    for name in own:
        examples.setdefault(name, ("{checkpoint}", "{name}"))
    settable = {name: templates for name, templates in examples.items() if names_a_checkpoint(name) and exports_plainly(spec, name)}
    first = [f"{name}={templates[0]}" for name, templates in settable.items()]
    second = [f"{name}={template}" for name, templates in settable.items() for template in templates[1:]]
    return tuple(dict.fromkeys((*first, *second)))[:MOST_SHOWN]


def _telling_lines(job: Job, read: FileReader) -> Iterator[tuple[str, str]]:
    """Yield the lines that may show a submission, each also together with the one before it."""
    script = job.spec.script if job.spec is not None else ""
    texts = [(script, False)]
    folder = folder_of_documents(job)
    for name, text in texts_of(job, folder, read) if folder is not None else ():
        if folder is not None and is_owners_own(job.account, folder, name):
            texts.append((text, BOOKS.fullmatch(name) is not None or name in MAKEFILES))
    for text, is_read_whole in texts:
        before = ""
        for raw in text.splitlines():
            line = raw.strip()[:LONGEST_LINE]
            is_comment = line.startswith("#") and not line.startswith(("#!", "#SBATCH"))
            if is_read_whole or is_comment or SPEAKS.match(line):
                yield line, f"{before} {line}"
            before = line if is_read_whole or is_comment else ""


def _assignments(job: Job, line: str, read: FileReader) -> Iterator[tuple[str, str]]:
    """Yield name and value of what a line sets that plainly submits or starts the very same script."""
    folder = folder_of_documents(job)
    before, _, last = line.strip("`\"'#>* ").rpartition(": ")
    code = TO_FILL_IN.sub("<>", last)
    if folder is None or REMOVES.search(before) or COMMAND.search(before) or IN_A_SHELL.search(code.replace("<>", "")):
        return
    words = [word.strip("`\"'") for word in re.findall(r"\S+", code)]
    places = iter(TO_FILL_IN.findall(last))
    words = [re.sub("<>", lambda match: next(places).replace(" ", "_"), word) for word in words]
    begin = next((place for place, word in enumerate(words) if ASSIGNMENT.fullmatch(word) or word == "sbatch"), len(words))
    leading = []
    for word in words[begin:]:
        if (match := ASSIGNMENT.fullmatch(word)) is None:
            break
        leading.append((match["name"], match["value"].rstrip(".:")))
    command = words[begin + len(leading) :]
    is_submitted = command[:1] in (["sbatch"], ["bash"], ["sh"])
    script = next((word for word in command[is_submitted:] if not word.startswith("-")), "").rstrip(".,")
    if not script or not is_the_script(job, read(str(folder / script)) or ""):
        return
    exports = [match for word in command if command[0] == "sbatch" and (match := EXPORTS.fullmatch(word))]
    exported = [item.partition("=") for match in exports for item in match["items"].split(",") if "=" in item]
    yield from (*leading, *((name, value) for name, _, value in exported))


def _templates(job: Job, name: str, value: str) -> tuple[str, ...]:
    """Return what stands for an example of a checkpoint: of a path or name like one there, a step, a place to fill in."""
    if not names_a_checkpoint(name):
        return ()
    if value.isdecimal():
        return ("{step}",) if counts_for_a_step(name) else ()
    if TO_FILL_IN.fullmatch(value) or NAMED_PLACE.fullmatch(value):
        return ("{checkpoint}", "{name}")
    path, folder = PurePosixPath(value), folder_of_documents(job)
    if folder is None or not FILE.fullmatch(value) or path.suffix.lower() in TEXT_FORMS:
        return ()
    entries = listed_folder(job.account, str((folder / path).parent)) or ()
    is_like_one = any(name_form(entry.name) == name_form(path.name) and not entry.link for entry in entries)
    if not is_like_one or not any(character.isdigit() for character in path.name):
        return ()
    return ("{checkpoint}", "{name}") if "/" in value else ("{name}", "{checkpoint}")


def _put_before_a_listing(source: TrainerSource) -> Iterator[str]:
    """Yield the variables that a program takes first, and looks for the newest only where they are not set."""
    try:
        tree = syntax_tree(source.text)
    except UNPARSED:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            yield from _pairs(source, node.values)
        elif isinstance(node, ast.IfExp):
            yield from _pairs(source, [node.body, node.orelse])
        elif isinstance(node, ast.Call) and key_read(source, node) is not None and len(node.args) > 1 and _lists(node.args[1]):
            yield from _name_read(source, node)
    for values in source.names.values():
        yield from _pairs(source, values)


def _pairs(source: TrainerSource, values: Sequence[ast.expr]) -> Iterator[str]:
    if any(map(_lists, values)):
        for value in values:
            yield from _name_read(source, value) if not _lists(value) else ()


def _name_read(source: TrainerSource, node: ast.expr) -> Iterator[str]:
    key = key_read(source, node)
    name = source.value(key) if key is not None else None
    if isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w{1,60}", name):
        yield name


def _lists(node: ast.expr) -> bool:
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return any(dotted(call.func).rpartition(".")[2] in LISTS for call in calls)
