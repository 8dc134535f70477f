"""Commands about logs: `nightshift diagnose` (why a run failed), `learn` (teach from labelled logs) and `logs` (read, search).

A diagnosis needs no settings and no store. What this installation learned comes from the store where there is one; without it
nothing is missing. `logs` shows the end of a log, the part of it that is not routine, and lines that match.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.cli.context import DryRun, Invocation, Json, app, examples, invocation_of
from assistant.cli.output import Exit, narrate, print_block, print_json, print_line, print_pairs, print_table, user
from assistant.errors import InputError, StoreError, ToolError, Unavailable
from assistant.redact import head_of, redact
from assistant.untrusted import LOOK_S, READ_S, each_within, is_regular, reading_as, within

if TYPE_CHECKING:
    from assistant.diagnose.case import Case
    from assistant.diagnose.facts import Facts
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.weighing.rivals import Opinion
    from assistant.engine import Engine
    from assistant.engine.learning import LearnedCase
    from assistant.logs.lines import Line
    from assistant.logs.tail import Ends
    from assistant.records import Citation, Diagnosis, Recall


diagnose_app = app(help="Find out why a run failed, from its log or folder.")

LINE_ROOM = 200
"""Characters of a cited line that are shown."""

PHASES = {
    "start": "start-up, before the first step",
    "loading": "loading a checkpoint",
    "first_step": "the first step",
    "training": "training",
    "evaluation": "an evaluation",
    "checkpoint": "saving a checkpoint",
    "end": "the end, after the last step",
}


@diagnose_app.command(
    epilog=examples(
        "nightshift diagnose slurm-4821.out",
        "nightshift diagnose runs/4821/                # a folder: job.log, dmesg.log, slurmctld.log, metrics.jsonl",
        "zcat job.log.gz | nightshift diagnose -",
        "nightshift diagnose --json runs/*/ | jq -r .reason",
    )
)
def diagnose(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="A log, a .gz, a folder with job.log, or - for stdin.")],
    shipped: Annotated[bool, typer.Option("--shipped", help="Leave out what was learned and remembered here.")] = False,
    as_json: Json = False,
) -> None:
    """Find out why a run failed, from its log or folder.

    Prints the reason, the lines that prove it, the nodes to blame, what to do, and what else it could be, from a confidence of
    10 % on (--json gives the others, too). Exit code 0 when every PATH could be read, whatever the diagnosis.
    """
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.learning.ranked import RankerOpinion
    from assistant.diagnose.verdict import judge

    invocation = invocation_of(context)
    knowledge, memory = learned_knowledge(invocation, Knowledge.load(invocation.site), shipped_only=shipped)
    opinions = (*memory, RankerOpinion(invocation.site))
    failures = 0
    for number, path in enumerate(paths):
        try:
            facts = _facts(path, knowledge)
            diagnosis = by_given_name(judge(facts, knowledge, opinions), path, facts.case)
        except (InputError, Unavailable) as error:
            narrate(f"nightshift: error: {error}")
            failures += 1
            continue
        if as_json:
            print_json(diagnosis_record(str(path), diagnosis))
        else:
            if number:
                print_line()
            show(str(path), diagnosis)
    if failures:
        raise typer.Exit(Exit.USAGE)


def _facts(path: Path, knowledge: Knowledge) -> Facts:
    """Return what a log or folder shows; the writer of standard input may take its time, a file system may not."""
    from assistant.diagnose.case import Case
    from assistant.diagnose.facts import gather
    from assistant.untrusted import LOOK_S, READ_S, within

    if str(path) == "-":
        return gather(Case.from_path(path), knowledge)
    case = within(LOOK_S, partial(Case.from_path, path), str(path))
    return within(READ_S, partial(gather, case, knowledge), str(path))


def by_given_name(diagnosis: Diagnosis, path: Path, case: Case) -> Diagnosis:
    """Return the diagnosis with the lines of the job's log given by the name that people know it by.

    That is of a file its path as given, of `-` `stdin`, of a folder the name of the log in it.
    """
    from assistant.diagnose.answer import JOB_LOG, placed

    main = case.job_log or (case.logs[0].path if case.logs else None)
    if str(path) == "-":
        name = "stdin"
    elif main is None:
        name = JOB_LOG
    else:
        name = str(path) if main == path else main.name
    return placed(diagnosis, lambda line: (name, line)) if name != JOB_LOG else diagnosis


def diagnosis_record(path: str, diagnosis: Diagnosis) -> Mapping[str, Any]:
    """Return a diagnosis as JSON; `faulty_nodes` holds names, `nodes` says why."""
    from assistant.tooling import to_json

    value = to_json(diagnosis)
    return {"path": path, **value, "faulty_nodes": list(diagnosis.faulty_nodes)}


LEAST_RIVAL = 0.1
"""Confidence of another explanation, 0 to 1, from which on a person is shown it; `--json` gives all of them."""


def show(path: str, diagnosis: Diagnosis) -> None:
    """Print a diagnosis for a person: the answer first, then what it rests on."""
    print_line(path)
    print_pairs(
        [
            ("reason", diagnosis.reason_shown),
            ("confidence", f"{diagnosis.confidence:.0%}, by {diagnosis.by}"),
            ("summary", diagnosis.summary),
            ("action", diagnosis.action.replace("_", " ")),
            ("at fault", [f"{finding.node}: {finding.why}" for finding in diagnosis.nodes]),
            ("where", [place.sentence for place in diagnosis.where]),
            ("last step", diagnosis.step),
            ("failed in", PHASES.get(diagnosis.phase)),
            ("spike at", diagnosis.spike_step),
            ("lines", [_cited(citation) for citation in diagnosis.root_cause]),
            ("across nodes", [pattern.text for pattern in diagnosis.patterns]),
            ("seen before", [_recalled(recall) for recall in diagnosis.seen_before]),
            ("what to do", diagnosis.advice),
        ]
    )
    rivals = [rival for rival in diagnosis.rivals if rival.confidence >= LEAST_RIVAL]
    if rivals:
        print_line("other explanations", colour="bold")
    for rival in rivals:
        print_line(f"  {rival.reason} ({rival.confidence:.0%})")
        print_pairs([("    for", rival.speaks_for), ("    against", rival.speaks_against), ("    test", rival.test)])


def _recalled(recall: Recall) -> str:
    shared = f", shares {', '.join(recall.shared)}" if recall.shared else ""
    cured = f", cured by {recall.cure}" if recall.cure else ""
    return f"incident {recall.incident} ({recall.at:%Y-%m-%d}): {recall.reason}, similarity {recall.similarity:.2f}{shared}{cured}"


def _cited(citation: Citation) -> str:
    text = redact(citation.text.strip())  # before it is cut: half a secret is not known for what it is any more
    return f"{citation.file}:{citation.line}: {head_of(text, LINE_ROOM, '…')}"


def learned_knowledge(invocation: Invocation, knowledge: Knowledge, *, shipped_only: bool) -> tuple[Knowledge, tuple[Opinion, ...]]:
    """Return the knowledge with the learned rules on top, and memory as an opinion; a store that cannot be opened only narrates."""
    if shipped_only or not invocation.settings.store.is_file():
        return knowledge, ()
    try:
        store = invocation.store
        learned, remembers = store.rules(counting=True), store.remembers()
    except StoreError as error:
        invocation.say(f"nightshift: what was learned is left out: {error}")
        return knowledge, ()
    if not remembers:
        return knowledge.with_learned(learned), ()
    from assistant.diagnose.learning.opinions import MemoryOpinion
    from assistant.llm.embedded import EmbeddedEmbedder

    return knowledge.with_learned(learned), (MemoryOpinion(store, EmbeddedEmbedder(), lambda: knowledge.reasons),)


learn_app = app(help="Teach Nightshift from labelled logs.")


@learn_app.command(
    epilog=examples("nightshift learn --from runs/labelled --dry-run", "nightshift learn --from runs/labelled --json")
)
def learn(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Option("--from", metavar="FOLDER", help="Cases with label.toml, or with labels.jsonl beside them.")
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Teach Nightshift from labelled logs.

    Each case is diagnosed. Where that is wrong, the labelled line becomes a signature on trial when it passes the proof; every
    case is remembered, and the embedded model's heads are fitted anew to all that is remembered, into the site's knowledge.
    A case is a folder as for `nightshift diagnose`, with a label.toml: reason, and where known lines (file:line), action, nodes,
    why. Healthy cases (reason = "no_failure") are what new signatures must not match.
    """
    from assistant.diagnose.case import read_labels
    from assistant.engine.learning import learn_from

    labels = read_labels(folder)
    invocation = invocation_of(context)
    with _engine(invocation, dry_run=dry_run) as engine:
        results = []
        for result in learn_from(engine, labels, by=user()):
            results.append(result)
            if as_json:
                print_json(_object(folder, result))
        if not dry_run:
            _relearn(invocation, engine)
    if not as_json:
        print_table(("case", "reason", "diagnosed", "incident", "learned"), [_row(folder, result) for result in results])


def _relearn(invocation: Invocation, engine: Engine) -> None:
    """Fit the embedded model's heads to every memory, where the site has a folder to keep them in."""
    from assistant.llm.embedded import relearn

    if invocation.site is None:
        return
    model = relearn([(line, memory.reason) for memory in engine.store.memories() for line in memory.lines[:1]], invocation.site)
    if model is not None:
        invocation.say(
            f"the line model knew {model.right_before} of {model.lines} remembered lines, "
            f"now knows {model.right_after}: {model.path}"
        )


@contextmanager
def _engine(invocation: Invocation, *, dry_run: bool) -> Iterator[Engine]:
    if dry_run:
        with invocation.rehearsal() as engine:
            yield engine
    else:
        yield invocation.engine()


def _row(folder: Path, result: LearnedCase) -> tuple[object, ...]:
    name = result.label.folder.relative_to(folder) if result.label.folder != folder else result.label.folder.name
    diagnosed = "unreadable" if result.before is None else "right" if result.was_right else result.before.reason
    return (name, result.label.reason, diagnosed, result.incident, _outcome(result))


def _outcome(result: LearnedCase) -> str:
    if result.problem or result.taught is None:
        return result.problem
    if result.taught.learned is not None:
        return f"{result.taught.learned.id}: {result.taught.learned.pattern}"
    return f"refused: {result.taught.refused}" if result.taught.refused else "remembered"


def _object(folder: Path, result: LearnedCase) -> dict[str, object]:
    learned = result.taught.learned if result.taught is not None else None
    return {
        "case": str(result.label.folder.relative_to(folder)),
        "reason": result.label.reason,
        "diagnosed": result.before.reason if result.before is not None else None,
        "right": result.was_right,
        "incident": result.incident,
        "rule": learned.id if learned is not None else None,
        "pattern": learned.pattern if learned is not None else None,
        "refused": result.taught.refused if result.taught is not None else "",
        "problem": result.problem,
    }


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
    from assistant.logs.lines import Line
    from assistant.redact import line_texts
    from assistant.redact.cuts import NEIGHBOURS

    read = {line.number: line.text for line in deque(open_lines(log_of(context, target)), maxlen=lines + NEIGHBOURS)}
    for number, text in line_texts(list(read)[-lines:], read.get).items():
        _print(Line(number, text), numbers, as_json)


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
    from assistant.rules.loading import load_patterns

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
    from assistant.diagnose.answer import pack
    from assistant.diagnose.knowledge import Knowledge
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


def open_lines(path: str) -> Iterator[Line]:
    """Yield the lines of a log; `-` is standard input."""
    from assistant.logs.lines import Line, clean

    number = 0
    for block in _blocks(path):
        for raw in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            yield Line(number, clean(raw))


def _matching(path: str, ends: Ends) -> Iterator[Line]:
    """Yield each line that matches once."""
    from assistant.logs.lines import Line, strip_ansi
    from assistant.logs.tail import matched_lines
    from assistant.redact import line_texts

    number = 1
    for block in map(strip_ansi, _blocks(path)):
        matched = list(matched_lines(block, ends, number))
        rows = block.split(b"\n") if matched else []
        # less what only the lines beside them tell to be a secret
        texts = line_texts([line.number for line in matched], partial(_text_of, rows, number))
        yield from (Line(line.number, texts.get(line.number, line.text)) for line in matched)
        number += block.count(b"\n")


def _text_of(rows: Sequence[bytes], first: int, number: int) -> str | None:
    from assistant.logs.lines import clean

    return clean(rows[number - first]) if first <= number < first + len(rows) else None
