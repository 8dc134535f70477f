"""Run one rehearsal or a row of them, and print how they ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from assistant.content.faults import Fault
from assistant.display import json_text, line
from assistant.doors.demo.rehearsal import Rehearsal, Result
from assistant.doors.demo.screen import Played, Screen
from assistant.engine.report import report

PIPED_WIDTH = 130
"""Columns where no terminal says how many it has."""


class Watched(Played, Protocol):
    """A rehearsal, here or on a cluster."""

    def run(self, show: Callable[[Any], None]) -> Result:
        """Run it to its end."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


def run(faults: Sequence[Fault], root: Path, *, as_json: bool, whole: bool) -> list[Result]:
    """Run faults on this machine and print them.

    Args:
        faults: Which.
        root: Each gets a folder in it.
        as_json: One JSON object a rehearsal on stdout, the timeline on stderr.
        whole: Print the incident report, not only the line of the table.
    """
    made = ((fault.title, fault.name, partial(Rehearsal, fault, root / fault.name)) for fault in faults)
    return play(made, as_json=as_json, whole=whole)


def play(rehearsals: Iterable[tuple[str, str, Callable[[], Watched]]], *, as_json: bool, whole: bool) -> list[Result]:
    """Run rehearsals one after the other, print each, then the table.

    Args:
        rehearsals: Title, name, and what makes one.
        as_json: One JSON object a rehearsal on stdout, the timeline on stderr.
        whole: Print the incident reports, too.
    """
    stream = sys.stderr if as_json else sys.stdout
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else PIPED_WIDTH)
    results = []
    for title, name, make in rehearsals:
        console.rule(Text(line(f"{name}: {title}")), style="dim")
        rehearsal = make()
        try:
            with Screen(console, steps=rehearsal.steps) as screen:
                result = rehearsal.run(screen)
            if whole and result.incident is not None:
                console.rule("report", style="dim")
                console.print(Markdown(report(rehearsal.engine.store, result.incident.id)))
        finally:
            rehearsal.close()
        results.append(result)
        for problem in result.problems:
            console.print(Text(line(f"not as expected: {problem}"), style="red"))
        if as_json:
            print(json_text(_plain(result)), flush=True)  # noqa: T201
    console.print(_table(results))
    return results


def _plain(result: Result) -> dict[str, Any]:
    times, diagnosis = result.times, result.diagnosis
    return {
        "schema": 1,
        "fault": result.fault,
        "as_expected": not result.problems,
        "problems": list(result.problems),
        "reason": diagnosis.reason if diagnosis else None,
        "action": str(diagnosis.action) if diagnosis else None,
        "faulty_nodes": list(diagnosis.faulty_nodes) if diagnosis else [],
        "state": str(result.incident.state) if result.incident else None,
        "restarts": len(result.jobs) - 1,
        "detect_s": times.detect_s if times else None,
        "diagnose_s": times.diagnose_s if times else None,
        "resubmit_s": times.resubmit_s if times else None,
        "recover_s": times.recover_s if times else None,
        "steps_lost": times.steps_lost if times else None,
        "seconds": round(result.seconds, 1),
    }


def _table(results: Sequence[Result]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("fault", no_wrap=True)
    table.add_column("diagnosis, then action")
    table.add_column("end", no_wrap=True)
    for column in ("detect", "diagnose", "resubmit", "recover", "lost", "run"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    for result in results:
        plain = _plain(result)
        figures = [_number(plain[name]) for name in ("detect_s", "diagnose_s", "resubmit_s", "recover_s")]
        nodes = f" on {', '.join(plain['faulty_nodes'])}" if plain["faulty_nodes"] else ""
        table.add_row(
            Text(line(result.fault)),
            Text(line(f"{plain['reason'] or '-'}{nodes}, {plain['action'] or '-'}")),
            Text(line(plain["state"] or "-")),
            *figures,
            "-" if plain["steps_lost"] is None else str(plain["steps_lost"]),
            f"{result.seconds:.0f} s",
            Text("ok", style="green") if not result.problems else Text("NOT OK", style="bold red"),
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
