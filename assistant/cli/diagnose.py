"""`nightshift diagnose`: why a run failed, from what it left behind. Needs no settings and no store; uses what was learned."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.cli.context import door_of
from assistant.cli.exits import Exit
from assistant.cli.group import app, examples
from assistant.cli.options import Json
from assistant.cli.output import narrate, print_json, print_line, print_pairs
from assistant.errors import InputError, Unavailable

if TYPE_CHECKING:
    from assistant.diagnose.case import Case
    from assistant.diagnose.facts import Facts
    from assistant.diagnose.knowledge import Knowledge
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
    from assistant.cli.learned_knowledge import remembered
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.ranked import RankerOpinion
    from assistant.diagnose.verdict import judge

    door = door_of(context)
    knowledge, memory = remembered(door, Knowledge.load(door.site), shipped_only=shipped)
    opinions = (*memory, RankerOpinion(door.site))
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
            print_json(as_object(str(path), diagnosis))
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
    from assistant.diagnose.parts import MAIN, placed

    main = case.job_log or (case.logs[0].path if case.logs else None)
    if str(path) == "-":
        name = "stdin"
    elif main is None:
        name = MAIN
    else:
        name = str(path) if main == path else main.name
    return placed(diagnosis, lambda line: (name, line)) if name != MAIN else diagnosis


def as_object(path: str, diagnosis: Diagnosis) -> Mapping[str, Any]:
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
    text = citation.text.strip()
    return f"{citation.file}:{citation.line}: {text if len(text) <= LINE_ROOM else text[:LINE_ROOM] + '…'}"
