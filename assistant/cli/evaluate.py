"""`nightshift evaluate`: a checkpoint on many datasets, on the nodes of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import door_of
from assistant.cli.exits import Exit
from assistant.cli.group import app, examples
from assistant.cli.options import Json
from assistant.cli.output import print_line, print_record, print_table
from assistant.errors import UsageError

if TYPE_CHECKING:
    from assistant.evaluation.results import EvaluationReport

evaluate_app = app(help="Evaluate a checkpoint on many datasets, each node loading it once.")


@evaluate_app.command(
    epilog=examples(
        "nightshift evaluate --demo",
        "nightshift evaluate --model /ckpt/7b-step4000 --suite nightly.toml --nodes 4",
        "nightshift evaluate --simulate --suite nightly.toml --nodes 4",
        "nightshift evaluate --resume nightly-20260301-120000",
        "nightshift evaluate --clean    # after a crash: give node memory back",
    )
)
def evaluate(
    context: typer.Context,
    model: Annotated[str, typer.Option("--model", metavar="PATH", help="The checkpoint; default: the suite's.")] = "",
    suite: Annotated[Path | None, typer.Option("--suite", metavar="FILE", help="What it is evaluated on.")] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, metavar="N", help="How many nodes to use.")] = 1,
    resume: Annotated[str, typer.Option("--resume", metavar="RUN", help="Go on with a run; what is done stays done.")] = "",
    simulate: Annotated[bool, typer.Option("--simulate", help="Only reckon how long it would take, in several ways.")] = False,
    from_storage: Annotated[
        bool, typer.Option("--from-storage", help="Let trials read the model where it lies; copy it to no node.")
    ] = False,
    retries: Annotated[int, typer.Option("--retries", min=0, metavar="N", help="Try what failed again so often.")] = 2,
    runs: Annotated[bool, typer.Option("--runs", help="List the runs.")] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="End what runs of crashed coordinators left, and free the memory of their nodes.")
    ] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Train a tiny model and evaluate it for real, on this machine.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="With --simulate: draw the GPUs over time.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Also write the results as Markdown.")] = None,
    as_json: Json = False,
) -> None:
    """Evaluate a checkpoint on many datasets, each node loading it once.

    One precursor job a node copies the model into the node's memory; trials on its GPUs read it there and end as soon as their
    outputs are written; metrics run on CPUs meanwhile. Long metrics are begun first, small datasets share a trial, large ones are
    split. After a crash --resume goes on where it was: what is finished is not done again. docs/evaluate.md tells more.

    Exit code 0 when every dataset has a score, 1 when some were given up or no node was left, 75 when the run is at work elsewhere.
    """
    door = door_of(context)
    _check(model, suite, resume, svg, one_of=(demo, simulate, runs, clean))
    if simulate:
        from assistant.cli.evaluate_simulate import simulate as simulated

        simulated(door, suite, nodes=nodes, as_json=as_json, svg=svg)
        return
    from assistant.cli import evaluate_run as running

    if runs:
        _list_runs(running.runs(door.settings), as_json)
        return
    if clean:
        unreached = running.clean(door, resume)
        raise typer.Exit(Exit.ERROR if unreached else Exit.DONE)
    if demo:
        report = running.demo(door, nodes=max(2, nodes), live=not as_json)
    elif resume:
        report = running.resume(door, resume, live=not as_json)
    else:
        assert suite is not None
        wish = running.EvaluationRequest(suite, model, nodes, from_storage=from_storage, retries=retries)
        report = running.begin(door, wish, live=not as_json)
    _print(report, as_json)
    if markdown is not None:
        from assistant.evaluation.results import markdown as written

        markdown.write_text(written(report), encoding="utf-8")
    raise typer.Exit(Exit.DONE if report.scored == len(report.results) else Exit.ERROR)


def _check(model: str, suite: Path | None, resume: str, svg: Path | None, *, one_of: tuple[bool, ...]) -> None:
    demo, simulate, runs, clean = one_of
    if sum(one_of) > 1:
        raise UsageError("--demo, --simulate, --runs and --clean are different things: give one of them")
    if resume and (suite is not None or model or demo or simulate or runs):
        raise UsageError("--resume goes on with a run as it was asked for: it goes with --clean only")
    if svg is not None and not simulate:
        raise UsageError("--svg draws what --simulate reckons: give both")
    if suite is None and not (resume or demo or simulate or runs or clean):
        raise UsageError("name a suite with --suite FILE, or see it work: nightshift evaluate --demo")


def _print(report: EvaluationReport, as_json: bool) -> None:
    if as_json:
        print_record(report)
        return
    from assistant.evaluation.results import COLUMNS, duration, rows

    print_table(COLUMNS, rows(report))
    given_up_text = f", {len(report.given_up)} given up" if report.given_up else ""
    took = f"{duration(report.seconds)}, lower bound {duration(report.bound_s)}"
    print_line(f"{report.run}: {report.scored} of {len(report.results)} datasets scored{given_up_text} in {took}")
    for item in sorted({item for result in report.results for item in result.unprotected}):
        print_line(f"sandbox: {item}")


def _list_runs(reports: list[EvaluationReport], as_json: bool) -> None:
    if as_json:
        for report in reports:
            print_record(report)
        return
    print_table(
        ("run", "state", "scored", "given_up", "datasets", "model"),
        [(entry.run, entry.state, entry.scored, len(entry.given_up), len(entry.results), entry.model) for entry in reports],
    )
