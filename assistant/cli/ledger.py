"""`nightshift nodes ledger`: which nodes were to blame, how often, and what they have in common."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import door_of
from assistant.cli.group import examples
from assistant.cli.options import Json
from assistant.cli.output import print_json, print_line, print_record, print_table
from assistant.cli.times import age

if TYPE_CHECKING:
    from assistant.diagnose.ledger import Score
    from assistant.records import NodePattern, Sighting

LEDGER_EXAMPLES = examples("nightshift nodes ledger", "nightshift nodes ledger --days 14 --json | jq -r 'select(.score > 1).node'")


def ledger(
    context: typer.Context,
    days: Annotated[float, typer.Option("--days", min=0.1, metavar="N", help="How far back.")] = 60.0,
    include_all: Annotated[bool, typer.Option("--all", help="Also nodes that were never to blame.")] = False,
    as_json: Json = False,
) -> None:
    """List the nodes that were to blame for failed jobs, worst first.

    A blame counts half after 14 days. Below stand what the nodes to blame share, more than chance explains.
    """
    from assistant.diagnose.ledger import patterns, scores
    from assistant.engine.ledger import fleet, known_traits

    engine = door_of(context).engine()
    now = engine.clock.now()
    sightings = engine.store.sightings(now - timedelta(days=days))
    listed = [score for score in scores(sightings, now) if include_all or score.blamed]
    shared = (
        patterns(sightings, [score.node for score in listed], known_traits(fleet(engine.scheduler), sightings), now)
        if sightings
        else ()
    )
    if as_json:
        for score in listed:
            print_json(_as_object(score))
        for pattern in shared:
            print_record(pattern)
        return
    rows = [
        (
            score.node,
            f"{score.score:.2f}",
            len(score.blamed),
            score.present,
            _reasons(score.blamed),
            age(score.blamed[-1].at, now) if score.blamed else "",
        )
        for score in listed
    ]
    print_table(("node", "score", "to blame", "failed jobs", "of what", "last"), rows)
    _show(shared)


def _show(shared: tuple[NodePattern, ...]) -> None:
    for number, pattern in enumerate(pattern for pattern in shared if pattern.kind != "repeat"):
        if not number:
            print_line()
        odds = f" (by chance {pattern.chance:.1g})" if pattern.chance is not None else ""
        print_line(f"{pattern.text}{odds}")


def _as_object(score: Score) -> dict[str, object]:
    return {
        "node": score.node,
        "score": score.score,
        "blamed": len(score.blamed),
        "present": score.present,
        "reasons": dict(Counter(sighting.reason for sighting in score.blamed)),
        "incidents": [sighting.incident for sighting in score.blamed],
        "last": score.blamed[-1].at.isoformat() if score.blamed else None,
    }


def _reasons(blamed: tuple[Sighting, ...]) -> str:
    counted = Counter(sighting.reason for sighting in blamed).most_common()
    return ", ".join(f"{reason} x {count}" if count > 1 else reason for reason, count in counted)
