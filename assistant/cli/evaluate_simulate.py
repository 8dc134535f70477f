"""`nightshift evaluate --simulate`: how long a suite would take, in the ways that the paper compares. Touches no cluster."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.cli.output import print_block, print_json, print_line, print_table
from assistant.errors import InputError, UsageError

if TYPE_CHECKING:
    from assistant.cli.context import Door
    from assistant.evaluation.priors import Priors
    from assistant.evaluation.records import Dataset, Machines
    from assistant.evaluation.replay import ChartPanel
    from assistant.evaluation.simulate import Storage
    from assistant.evaluation.strategies import StrategyComparison

CHARTED = ("baseline", "sized", "all")
COLUMNS = ("strategy", "makespan_s", "speedup", "gpu_hours", "over_bound", "what")


def simulate(
    door: Door | None,
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
        door: Names the site's content; None for the shipped priors.
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
    from assistant.evaluation.priors import Priors
    from assistant.evaluation.records import Machines
    from assistant.evaluation.simulate import Storage
    from assistant.evaluation.strategies import compare

    priors = Priors.load(door.settings.content if door is not None else None)
    sets, title, model_bytes = _sets(suite, priors)
    storage = Storage(model_bytes or priors.unit.model_bytes, priors.unit.nic_bits_s / 8)
    machines = Machines(nodes, gpus_per_node, cpus_per_node, priors.unit.start_s, storage.fetch_s)
    for dataset in sets:
        if dataset.gpus > gpus_per_node:
            raise UsageError(f"{dataset.name} needs {dataset.gpus} GPUs of one node, and nodes have {gpus_per_node}")
    comparison = compare(sets, priors, machines, storage)
    if svg is not None:
        _draw(svg, comparison, machines, title)
    if as_json:
        print_json(_record(comparison, sets, machines, storage, title))
        return
    _print(comparison, sets, machines, storage, title)


def _sets(suite: Path | None, priors: Priors) -> tuple[list[Dataset], str, int]:
    from assistant.evaluation.records import Dataset
    from assistant.evaluation.suite import load_suite

    items_by_name = {name: prior.items for name, prior in priors.by_dataset.items()}
    if suite is None:
        return (
            [Dataset(name, items, "{pieces}", "metric") for name, items in items_by_name.items()],
            "the 63 datasets of the priors",
            0,
        )
    read = load_suite(suite, items_by_name)
    return list(read.datasets), read.title, _size(Path(read.model)) if read.model else 0


def _size(model: Path) -> int:
    """Return the bytes of a model that lies here; 0 where it does not, for simulating needs none."""
    if model.is_file():
        return model.stat().st_size
    return sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) if model.is_dir() else 0


def _record(
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


def _print(comparison: StrategyComparison, sets: list[Dataset], machines: Machines, storage: Storage, title: str) -> None:
    from assistant.evaluation.replay import terminal
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
    print_table(COLUMNS, rows)
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "")
    width = min(100, shutil.get_terminal_size((80, 24)).columns)
    print_line()
    print_block(terminal(_panels(comparison), machines.nodes * machines.gpus_per_node, width=width, unicode=encoding == "utf8"))


def _panels(comparison: StrategyComparison) -> list[ChartPanel]:
    from assistant.evaluation.replay import ChartPanel
    from assistant.evaluation.strategies import STRATEGIES

    return [ChartPanel(strategy.title, comparison.outcomes[strategy.name]) for strategy in STRATEGIES if strategy.name in CHARTED]


def _draw(path: Path, comparison: StrategyComparison, machines: Machines, title: str) -> None:
    from assistant.evaluation.replay import ChartPanel, svg
    from assistant.evaluation.strategies import STRATEGIES

    panels = [ChartPanel(strategy.title, comparison.outcomes[strategy.name]) for strategy in STRATEGIES]
    picture = svg(panels, machines.nodes * machines.gpus_per_node, comparison.bound_s, title=f"{title}, {machines.nodes} nodes")
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: the chart cannot be written: {error.strerror}") from error
