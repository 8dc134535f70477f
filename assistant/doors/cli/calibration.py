"""`nightshift bench calibration`: how far confidence can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.doors.cli.door import door_of
from assistant.doors.cli.options import Json
from assistant.doors.cli.output import print_json, print_line, print_table
from assistant.errors import InputError

if TYPE_CHECKING:
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.labels import Label
    from assistant.diagnose.reliability import Reliability
    from assistant.ports import Ranker

LIKE_RANKER = 0.6
"""How alike lines are that the ranker may not have learned from."""


def calibration(
    context: typer.Context,
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER", help="Cases with label.toml, or with labels.jsonl beside them.")
    ],
    seen: Annotated[
        bool, typer.Option("--seen", help="Leave the rules as they are, although they may know the wordings of these cases.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the curves of these cases, as a calibration.toml.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell how far confidence can be believed.

    Each case is diagnosed with the signatures hidden that know its wording, and the line ranker is trained without it. Confidence
    comes from curves that were fitted on the other four fifths of the cases. For each tenth of confidence: cases, mean confidence,
    share right; then the mean distance between the two (ECE) and the Brier score.
    """
    from assistant.diagnose.calibration import curves, fitted
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.labels import read_labels
    from assistant.diagnose.reliability import as_toml, guesses, held_out, reliability, verdicts

    labels = [label for folder in folders for label in read_labels(folder)]
    knowledge = Knowledge.load(door_of(context).site)
    told = [one for one in verdicts(labels, knowledge, unseen=not seen) if one.reason != "unknown"]
    rule = [(one.raw, one.right) for one in told]
    ranker = [(one.raw, one.right) for one in guesses(labels, knowledge, _ranker(labels, door_of(context).site))]
    if min(len(rule), len(ranker)) < 2:
        raise InputError(f"{len(labels)} cases are too few: a curve needs some that are diagnosed")
    encoder = _encoder(knowledge, labels)
    tables = [("rules, as computed", rule), ("rules", held_out(rule)), ("linear line ranker", held_out(ranker))]
    for name, seen_of in (*tables, *([("line ranker with the encoder", held_out(encoder))] if encoder else [])):
        _show(name, reliability(seen_of), as_json=as_json)
    if write is not None:
        made_from = f"{len(labels)} cases of {', '.join(folder.name for folder in folders)}; wordings hidden: {not seen}".lower()
        kept = curves(door_of(context).site)  # how sure a good end is has a curve of its own, of raw logs
        made = replace(kept, made_from=made_from, rule=fitted(rule), ranker=fitted(ranker), encoder=fitted(encoder))
        write.write_text(as_toml(made), encoding="utf-8")


def _encoder(knowledge: Knowledge, labels: Sequence[Label]) -> list[tuple[float, bool]]:
    """Return how sure the shipped encoder is of each case, and whether it is right; nothing where it does not work.

    It was trained without lines like those of the suites in tests/cases; of other cases it may know the wordings.
    """
    from assistant.diagnose.reliability import guesses
    from assistant.llm import embedded

    if not embedded.status().works:
        return []
    return [(one.raw, one.right) for one in guesses(labels, knowledge, embedded.ranker())]


def _ranker(labels: Sequence[Label], site: Path | None) -> Ranker:
    from assistant.diagnose.reliability import unseen_lessons
    from assistant.llm.lessons import lessons
    from assistant.llm.ranker import LinearRanker
    from assistant.llm.training import train

    return LinearRanker(train(unseen_lessons(lessons(site), labels, LIKE_RANKER)))


def _show(name: str, table: Reliability, *, as_json: bool) -> None:
    if as_json:
        bins = [one._asdict() for one in table.bins]
        print_json({"of": name, "cases": table.cases, "right": table.right, "ece": table.error, "brier": table.brier, "bins": bins})
        return
    print_line(f"{name}: {table.cases} cases, {table.right:.3f} right, ECE {table.error:.3f}, Brier {table.brier:.3f}")
    rows = [(f"{one.low:.1f}-{one.high:.1f}", one.cases, f"{one.confidence:.2f}", f"{one.right:.2f}") for one in table.bins]
    print_table(("confidence", "cases", "mean", "right"), rows)
