"""`nightshift evaluate`: a checkpoint on many datasets, on the nodes of the cluster, for real or simulated.

`--simulate` says how long a suite would take, in the ways that the paper compares, and touches no cluster.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Json, app, examples, invocation_of
from assistant.cli.output import Exit, print_block, print_json, print_line, print_record, print_table
from assistant.errors import UsageError

if TYPE_CHECKING:
    from assistant.cli.context import Invocation
    from assistant.evaluation.plan_inputs import Priors
    from assistant.evaluation.results import ChartPanel, EvaluationReport
    from assistant.evaluation.strategies import StrategyComparison
    from assistant.evaluation.work import Dataset, Machines, Storage


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
    invocation = invocation_of(context)
    _check(model, suite, resume, svg, one_of=(demo, simulate, runs, clean))
    if simulate:
        print_simulation(invocation, suite, nodes=nodes, as_json=as_json, svg=svg)
        return
    from assistant.cli.measure import evaluate_run as running

    if runs:
        _list_runs(running.runs(invocation.settings), as_json)
        return
    if clean:
        unreached = running.clean(invocation, resume)
        raise typer.Exit(Exit.ERROR if unreached else Exit.DONE)
    if demo:
        report = running.demo(invocation, nodes=max(2, nodes), live=not as_json)
    elif resume:
        report = running.resume(invocation, resume, live=not as_json)
    else:
        assert suite is not None
        wish = running.EvaluationRequest(suite, model, nodes, from_storage=from_storage, retries=retries)
        report = running.begin(invocation, wish, live=not as_json)
    _print(report, as_json)
    if markdown is not None:
        from assistant.evaluation.results import markdown as written
        from assistant.output_files import write_output

        write_output(markdown, written(report))
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


CHARTED = ("baseline", "sized", "all")
STRATEGY_COLUMNS = ("strategy", "makespan_s", "speedup", "gpu_hours", "over_bound", "what")


def print_simulation(
    invocation: Invocation | None,
    suite: Path | None,
    *,
    nodes: int = 1,
    gpus_per_node: int = 8,
    cpus_per_node: int = 128,
    as_json: bool = False,
    svg: Path | None = None,
) -> None:
    """Print makespan, speed-up and GPU-hours of each strategy, and the GPUs over time.

    Args:
        invocation: Names the site's content; None for the shipped priors.
        suite: What is evaluated; None: the 63 datasets of the priors.
        nodes: How many.
        gpus_per_node: Of each.
        cpus_per_node: Of each, for metrics.
        as_json: One JSON object instead of the table and the chart.
        svg: Where the chart is written as a picture, too.

    Raises:
        UsageError: The suite is wrong, or a dataset needs more GPUs than a node has.
        InputError: The picture cannot be written.
    """
    from assistant.evaluation.plan_inputs import Priors
    from assistant.evaluation.strategies import compare
    from assistant.evaluation.work import Machines, Storage

    priors = Priors.load(invocation.settings.content if invocation is not None else None)
    sets, title, model_bytes = _sets(suite, priors)
    storage = Storage(model_bytes or priors.unit.model_bytes, priors.unit.nic_bits_s / 8)
    machines = Machines(nodes, gpus_per_node, cpus_per_node, priors.unit.start_s, storage.fetch_s)
    for dataset in sets:
        if dataset.gpus > gpus_per_node:
            raise UsageError(f"{dataset.name} needs {dataset.gpus} GPUs of one node, and nodes have {gpus_per_node}")
    comparison = compare(sets, priors, machines, storage)
    if svg is not None:
        _write_chart(svg, comparison, machines, title)
    if as_json:
        print_json(_simulation_record(comparison, sets, machines, storage, title))
        return
    _print_strategies(comparison, sets, machines, storage, title)


def _sets(suite: Path | None, priors: Priors) -> tuple[list[Dataset], str, int]:
    from assistant.evaluation.suite import load_suite
    from assistant.evaluation.work import Dataset

    items_by_name = {name: prior.items for name, prior in priors.by_dataset.items()}
    if suite is None:
        return (
            [Dataset(name, items, "{pieces}", "metric") for name, items in items_by_name.items()],
            "the 63 datasets of the priors",
            0,
        )
    read = load_suite(suite, items_by_name)
    return list(read.datasets), read.title, _model_bytes(Path(read.model)) if read.model else 0


def _model_bytes(model: Path) -> int:
    """Return the bytes of a model that lies here; 0 where it does not, for simulating needs none."""
    if model.is_file():
        return model.stat().st_size
    return sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) if model.is_dir() else 0


def _simulation_record(
    comparison: StrategyComparison, sets: list[Dataset], machines: Machines, storage: Storage, title: str
) -> dict[str, object]:
    from assistant.evaluation.strategies import STRATEGIES

    rows = [
        {
            "strategy": strategy.name,
            "what": strategy.title,
            "makespan_s": comparison.outcomes[strategy.name].makespan_s,
            "speedup": comparison.speedup(strategy.name),
            "gpu_hours": comparison.outcomes[strategy.name].gpu_hours,
            "over_bound": comparison.over_bound(strategy.name),
            "trials": comparison.outcomes[strategy.name].trials,
        }
        for strategy in STRATEGIES
    ]
    storage_facts = {"model_bytes": storage.model_bytes, "nic_bytes_s": storage.nic}
    return {
        "title": title,
        "datasets": len(sets),
        "machines": asdict(machines),
        "storage": storage_facts,
        "strategies": rows,
        "bound_s": comparison.bound_s,
    }


def _print_strategies(
    comparison: StrategyComparison, sets: list[Dataset], machines: Machines, storage: Storage, title: str
) -> None:
    from assistant.evaluation.results import terminal
    from assistant.evaluation.strategies import STRATEGIES

    nodes = f"{machines.nodes} node{'s' if machines.nodes > 1 else ''} of {machines.gpus_per_node} GPUs"
    size, speed = storage.model_bytes / 1e9, storage.nic * 8 / 1e9
    print_line(f"{title}: {len(sets)} datasets on {nodes}; a model of {size:.3g} GB, read at {speed:.3g} Gb/s a node")
    rows: list[tuple[object, ...]] = []
    for strategy in STRATEGIES:
        outcome = comparison.outcomes[strategy.name]
        share = f"{100 * comparison.over_bound(strategy.name):.1f} %"
        rows.append(
            (
                strategy.name,
                round(outcome.makespan_s),
                f"{comparison.speedup(strategy.name):.2f}x",
                f"{outcome.gpu_hours:.2f}",
                share,
                strategy.title,
            )
        )
    times = comparison.outcomes["baseline"].makespan_s / comparison.bound_s if comparison.bound_s else 1.0
    rows.append(("bound", round(comparison.bound_s), f"{times:.2f}x", "", "0.0 %", "no schedule can be shorter"))
    print_table(STRATEGY_COLUMNS, rows)
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "")
    width = min(100, shutil.get_terminal_size((80, 24)).columns)
    print_line()
    print_block(terminal(_panels(comparison), machines.nodes * machines.gpus_per_node, width=width, unicode=encoding == "utf8"))


def _panels(comparison: StrategyComparison) -> list[ChartPanel]:
    from assistant.evaluation.results import ChartPanel
    from assistant.evaluation.strategies import STRATEGIES

    return [ChartPanel(strategy.title, comparison.outcomes[strategy.name]) for strategy in STRATEGIES if strategy.name in CHARTED]


def _write_chart(path: Path, comparison: StrategyComparison, machines: Machines, title: str) -> None:
    from assistant.evaluation.results import ChartPanel, svg
    from assistant.evaluation.strategies import STRATEGIES
    from assistant.output_files import write_output

    panels = [ChartPanel(strategy.title, comparison.outcomes[strategy.name]) for strategy in STRATEGIES]
    picture = svg(panels, machines.nodes * machines.gpus_per_node, comparison.bound_s, title=f"{title}, {machines.nodes} nodes")
    write_output(path, picture)
