"""Variables of the submission by which a run may go on, as its owner shows them: `STATE=states/step_0040.lbm sbatch run.sh`.

Read are the comments and usage texts of the script, and the books and makefiles beside it that only their owner may write:
assignments in front of `sbatch` or of a command of the owner's, and in `--export=ALL,STATE=…`. A program or a script that takes a
variable first and looks for the newest only without it (`os.environ.get("STATE") or max(…)`, `${STATE:-$(ls -t …)}`) says so
itself. Nothing is proven by that: a trial start does it, with the chosen checkpoint in the place of the example.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from assistant.records import Job
from assistant.recover.job_program import FileReader, JobProgram
from assistant.recover.resume.documented import (
    BOOKS,
    MAKEFILES,
    NAMED_PLACE,
    SPEAKS_OF_IT,
    folder_of_documents,
    is_owners_own,
    templates_of_example,
    texts_of,
)
from assistant.recover.resume.script_variable import is_harmless, may_be_set
from assistant.recover.source.newest_choice import LISTS
from assistant.recover.source.settings import key_read
from assistant.recover.source.trainer_source import UNPARSED, TrainerSource, dotted, syntax_tree
from assistant.schedulers.slurm_spec import exports_plainly

LONGEST_LINE = 1000
MOST_SHOWN = 4
ASSIGNS = re.compile(r"(?<![\w.\-/])(?P<name>[A-Za-z_]\w{1,60})=(?P<value><[^<>\n]{1,60}>|[^\s;|&<>$`\"'(),]{1,200})")
STARTS = re.compile(r"\bsbatch\b|(?<!\S)\.{0,2}/[\w./-]+|\b(?:ba|da)?sh\s+[\w./-]+|\bmake\s+[\w-]+")
"""What an assignment stands in front of."""
EXPORTS = re.compile(r"--export[= ](?P<items>[^\s\"'`]{1,300})")
SPEAKS = re.compile(r"(?:echo|printf|cat)\b")
FILE = re.compile(r"(?=.*[A-Za-z])[\w-]{1,80}(?:[._-][\w-]{1,40}){1,4}")
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
        for name, value in _assignments(line):
            if (SPEAKS_OF_IT.search(around) or may_be_set(name)) and (templates := _templates(value)):
                examples.setdefault(name, templates)
    code = "\n".join(line for line in spec.script.splitlines() if not line.lstrip().startswith("#"))
    own = [match["name"] for match in IN_SHELL.finditer(code)]
    own += [name for program in programs for source in program.sources for name in _put_before_a_listing(source)]
    for name in own:
        examples.setdefault(name, ("{checkpoint}", "{name}"))
    settable = {name: templates for name, templates in examples.items() if is_harmless(name) and exports_plainly(spec, name)}
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


def _assignments(line: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of what a line sets for a submission."""
    command = STARTS.search(line)
    for match in ASSIGNS.finditer(line):
        if command is not None and match.end() <= command.start():
            yield match["name"], match["value"].rstrip(".:")
    if "sbatch" in line:
        for exported in EXPORTS.finditer(line):
            for item in exported["items"].split(","):
                name, equals, value = item.partition("=")
                if equals and re.fullmatch(r"[A-Za-z_]\w{1,60}", name):
                    yield name, value


def _templates(value: str) -> tuple[str, ...]:
    """Return what stands for a value that may be an example of a checkpoint: a path, a file, a number, a place to fill in."""
    if value.startswith("<") or "/" in value or NAMED_PLACE.fullmatch(value):
        return ("{checkpoint}", "{name}")
    if value.isdecimal():
        return ("{step}",)
    return templates_of_example(value) if FILE.fullmatch(value) else ()


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
