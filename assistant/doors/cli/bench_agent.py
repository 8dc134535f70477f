"""`nightshift bench agent`: questions about recorded clusters, scored without a judge."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated

import typer

from assistant.doors.cli.door import door_of
from assistant.doors.cli.options import Json
from assistant.doors.cli.output import print_json, print_line, print_table

CASES = Path("tests/cases/agent")


def agent(
    context: typer.Context,
    cases: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Cases and their states; tests/cases/agent of the sources.")
    ] = CASES,
    model: Annotated[
        bool, typer.Option("--model", help="Measure the configured language model instead of the agent without one.")
    ] = False,
    faults: Annotated[bool, typer.Option("--faults", help="Print each task that failed, and why.")] = False,
    as_json: Json = False,
) -> None:
    """Measure the agent on questions about recorded clusters.

    Of each group of cases: how often the right tool was chosen, and how often the whole task succeeded: the facts named, nothing
    said that must not be said, sources given, and the cluster left as it was.
    """
    from assistant.doors.agent_bench import Asks, load_cases, run_cases, shares
    from assistant.engine import Engine
    from assistant.wiring import open_agent

    settings = door_of(context).settings

    def agent_of(engine: Engine) -> Asks:
        return open_agent(engine, settings, model=model)

    scored = run_cases(load_cases(cases), cases, agent_of)
    found = shares(scored)
    if as_json:
        for share in found:
            print_json(share._asdict())
    else:
        rows = [(one.name, one.cases, f"{one.tool:.3f}", f"{one.success:.3f}") for one in found]
        print_table(("cases", "number", "right tool", "task done"), rows)
        print_line(f"median {statistics.median(one.seconds for one in scored) * 1000:.0f} ms an answer")
    for one in scored if faults else ():
        if one.faults or not one.tool:
            read_as = one.answer.intent or one.answer.mode if one.answer is not None else "nothing"
            print_line(f"{' / '.join(one.case.ask)}: taken for {read_as}; {'; '.join(one.faults) or 'wrong tool'}")
