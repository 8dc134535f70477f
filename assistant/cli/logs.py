"""`nightshift logs`: the end of a log, the part of it that is not routine, and lines that match."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import invocation_of
from assistant.cli.group import Json, app, examples
from assistant.cli.output import print_block, print_json
from assistant.errors import ToolError
from assistant.untrusted import LOOK_S, READ_S, each_within, is_regular, reading_as, within

if TYPE_CHECKING:
    from assistant.diagnose.facts import Facts
    from assistant.diagnose.knowledge import Knowledge
    from assistant.logs.lines import Line
    from assistant.logs.tail import Ends

STANDARD_INPUT = "-"

logs_app = app(help="Read, compress or search a log.", no_args_is_help=True)

Target = Annotated[str, typer.Argument(metavar="PATH|JOB", help="A log, a .gz, - for stdin, or the id of a job.")]
Numbers = Annotated[bool, typer.Option("--numbers/--no-numbers", "-N", help="Print the number of each line in front of it.")]


def log_of(context: typer.Context, target: str) -> str:
    """Return the path of a log, asked of the scheduler where the target is a job id.

    Raises:
        ToolError: The scheduler knows no such job, or the job has no log yet.
    """
    if target == STANDARD_INPUT or "/" in target or Path(target).suffix or Path(target).exists():
        if target != STANDARD_INPUT:
            within(LOOK_S, lambda: is_regular(Path(target)), target)  # a mount that hangs ends here
        return target
    job = invocation_of(context).engine().scheduler.job(target)
    log = job.log
    if log is None:
        from assistant.recover.joblog import logs_of

        logs = logs_of(job)
        if not logs.readable:
            raise ToolError(f"job {target} has no log that can be read: {logs.none_because()}")
        log = logs.readable[0].path
    context.with_resource(reading_as(job.account))  # until the command has ended
    within(LOOK_S, lambda: is_regular(log), str(log))
    return str(job.log)


@logs_app.command("tail", epilog=examples("nightshift logs tail job.log", "nightshift logs tail 4821 -n 50 --numbers"))
def tail(
    context: typer.Context,
    target: Target,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, metavar="N", help="How many lines.")] = 20,
    numbers: Numbers = False,
    as_json: Json = False,
) -> None:
    """Print the end of a log, of progress bars only their last state."""
    for line in deque(_lines(log_of(context, target)), maxlen=lines):
        _print(line, numbers, as_json)


@logs_app.command(
    "search",
    epilog=examples("nightshift logs search 4821 'NCCL|Xid'", "nightshift logs search job.log.gz -i 'out of memory' --json"),
)
def search(
    context: typer.Context,
    target: Target,
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="Regular expression, as RE2 takes it: no look-around, no back-references.")
    ],
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Capital and small letters are the same.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Stop after N lines.")] = 1000,
    numbers: Numbers = True,
    as_json: Json = False,
) -> None:
    """Print the lines of a log that match a regular expression.

    No line is no error: the exit code is 0 and nothing is printed.
    """
    from assistant.logs.tail import typed_search

    ends = typed_search(pattern, caseless=ignore_case)
    for count, line in enumerate(_matching(log_of(context, target), ends)):
        if count == limit:
            invocation_of(context).say(f"stopped after {limit} lines; more with --limit")
            break
        _print(line, numbers, as_json)


@logs_app.command(
    "compress", epilog=examples("nightshift logs compress job.log", "nightshift logs compress runs/4821 --tokens 4000")
)
def compress(
    context: typer.Context,
    target: Target,
    budget: Annotated[int, typer.Option("--budget", min=200, metavar="N", help="At most so many characters.")] = 20_000,
    tokens: Annotated[int, typer.Option("--tokens", min=0, metavar="N", help="Pack evidence into about N tokens instead.")] = 0,
    task: Annotated[str, typer.Option("--task", metavar="KEY", help="Key of the task whose good runs show what is new.")] = "",
    as_json: Json = False,
) -> None:
    """Print what is not routine in a log, within a budget; folded lines are counted.

    With --tokens it is the evidence of a log or folder: phase, metrics, every episode once, lines that no good run printed, and the
    rest folded. A token is taken as four characters.
    """
    if tokens:
        _print_pack(context, target if Path(target).is_dir() else log_of(context, target), tokens, task, as_json)
        return
    from assistant.logs.compress import compress as compressed
    from assistant.logs.scan import scan_log
    from assistant.rules.matching import load_patterns

    path = log_of(context, target)
    patterns = load_patterns(invocation_of(context).site)
    scan = scan_log(path, patterns) if path == STANDARD_INPUT else within(READ_S, lambda: scan_log(path, patterns), path)
    text = compressed(scan, budget)
    if as_json:
        print_json({"path": path, "lines": scan.lines_total, "bytes": scan.size_bytes, "truncated": scan.truncated, "text": text})
    else:
        print_block(text.rstrip("\n"))
        if scan.truncated:
            invocation_of(context).say(f"{path}: a gzip that ends early, or too long a log; this is what was read")


def _print_pack(context: typer.Context, path: str, tokens: int, task: str, as_json: bool) -> None:
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.pack import pack
    from assistant.logs.templates import Baseline, task_key

    invocation = invocation_of(context)
    knowledge = Knowledge.load(invocation.site)
    if not invocation.settings.store.exists():  # a log alone needs no store
        packed = pack(_gathered(path, knowledge), tokens)
    else:
        facts = _gathered(path, knowledge.with_learned(invocation.store.rules(counting=True)))
        states = invocation.store.templates(task or task_key(None, (line.text for line in facts.lines)))
        packed = pack(facts, tokens, baseline=Baseline.of(states))
    if as_json:
        print_json({"path": path, "tokens": packed.tokens, "left_out": packed.left_out, "text": packed.text})
    else:
        print_block(packed.text)


def _gathered(path: str, knowledge: Knowledge) -> Facts:
    from assistant.diagnose.case import Case
    from assistant.diagnose.facts import gather

    def read() -> Facts:
        return gather(Case.from_path(path), knowledge)

    return read() if path == STANDARD_INPUT else within(READ_S, read, path)


def _print(line: Line, numbers: bool, as_json: bool) -> None:
    if as_json:
        print_json({"line": line.number, "text": line.text})
    else:
        print_block(f"{line.number}: {line.text}" if numbers else line.text)


def _blocks(path: str) -> Iterator[bytes]:
    """Yield the blocks of a log; a file system that dies meanwhile ends it with an error, a silent standard input is waited for."""
    from assistant.logs.reading import blocks, open_log

    def read() -> Iterator[bytes]:
        with open_log(path) as stream:
            yield from blocks(stream)

    return read() if path == STANDARD_INPUT else each_within(LOOK_S, read, path)


def _lines(path: str) -> Iterator[Line]:
    from assistant.logs.lines import Line, clean

    number = 0
    for block in _blocks(path):
        for raw in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            yield Line(number, clean(raw))


def _matching(path: str, ends: Ends) -> Iterator[Line]:
    """Yield each line that matches once."""
    from assistant.logs.lines import strip_ansi
    from assistant.logs.tail import matched_lines

    number = 1
    for block in map(strip_ansi, _blocks(path)):
        yield from matched_lines(block, ends, number)
        number += block.count(b"\n")
