"""An evaluation on the embedded scheduler whose commands are a few lines of shell, and which notes whatever ran.

python -m tests.scenarios.evaluating FOLDER WRITE     goes on with it, and dies by SIGKILL around its WRITE-th line of the journal
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assistant.evaluation import files
from assistant.evaluation.coordinator import Coordinator
from assistant.evaluation.files import RunFolder
from assistant.evaluation.plan_inputs import Planner
from assistant.evaluation.stage import Model
from assistant.evaluation.suite import RunSpec, load_asked
from assistant.evaluation.work import Dataset, Estimate, Machines, Piece, Trial, TrialPlan, gaps
from assistant.ports import Scheduler, SystemClock
from assistant.schedulers.local import LocalScheduler

INFER = """\
echo "infer $3 $4 $5 $SLURMD_NODENAME" >> "$1/ran"
[ -e "$2" ] || exit 9
test -e "$1/slow.$3" && sleep "$(cat "$1/slow.$3")"
test -e "$1/bad.$3" && { echo "no such question" >&2; exit 3; }
test -e "$1/bad.$3.$SLURMD_NODENAME" && exit 4
seq "$4" "$(($5 - 1))" > "$6"
"""
METRIC = """\
echo "metric $2 $SLURMD_NODENAME" >> "$1/ran"
test -e "$1/endless.$2" && { s=$(cat "$1/endless.$2"); sleep "$s" & setsid sleep "$s" & sleep "$s"; }
test -e "$1/unscored.$2" && exit 5
echo "{\\"score\\": $(wc -l < "$3")}" > "$4"
"""
FETCH = """\
echo "fetch $SLURMD_NODENAME" >> "$1/ran"
test -e "$1/slow.fetch" && sleep "$(cat "$1/slow.fetch")"
cp -r "$2" "$3"
"""
MEMORY_BYTES = 300_000


def plan(
    datasets: Sequence[Dataset],
    estimates: Mapping[str, Estimate],
    machines: Machines,
    *,
    running: Sequence[tuple[Trial, float]],
    completed: Iterable[Piece],
) -> TrialPlan:
    """Return a trial for each dataset, in pieces of ten items."""
    covered = [*completed, *(piece for trial, _ in running for piece in trial.pieces)]
    trials = []
    for one in datasets:
        for gap in gaps(one, covered):
            firsts = range(gap.first, gap.last, 10) if one.split else (gap.first,)
            pieces = tuple(Piece(one.name, at, min(at + 10, gap.last) if one.split else gap.last) for at in firsts)
            trials.append(Trial(pieces, estimates[one.name].infer_s, estimates[one.name].metric_s, one.gpus))
    return TrialPlan(sorted(trials, key=lambda one: -one.tail_s), 0.0, 0.0)


class World:
    """A cluster, a model, a run, and what ran."""

    def __init__(
        self,
        root: Path,
        *,
        nodes: int = 2,
        items: Mapping[str, int] | None = None,
        scheduler: Scheduler | None = None,
        memory: str = "",
    ) -> None:
        """Make them, or find them again; on the embedded scheduler unless another is given."""
        self.root = root
        self.memory = memory or str(root / "memory" / "{node}")
        self.cluster = LocalScheduler(root / "cluster", SystemClock(), nodes=nodes, cpus=3)
        self.scheduler = scheduler or self.cluster
        self.folder = RunFolder(root / "runs" / "run")
        self.nodes = nodes
        if not self.folder.spec_file.exists():
            self._make(items or {"a": 20, "b": 10, "c": 5})

    def _make(self, items: Mapping[str, int]) -> None:
        (self.root / "model").mkdir(parents=True)
        (self.root / "model" / "weights").write_bytes(os.urandom(MEMORY_BYTES))
        (self.root / "model" / "vocabulary").write_text("a b c")
        for name, text in (("infer", INFER), ("metric", METRIC), ("fetch", FETCH)):
            (self.root / f"{name}.sh").write_text(text)
        shell = f"/bin/sh {self.root}/"
        infer = f"{shell}infer.sh {self.root} {{model}}/weights {{dataset}} {{first}} {{last}} {{out}}"
        metric = f"{shell}metric.sh {self.root} {{dataset}} {{out}} {{score}}"
        fetch = f"{shell}fetch.sh {self.root} {{source}} {{target}}"
        datasets = tuple(Dataset(name, count, infer, metric, metric_timeout_s=30) for name, count in items.items())
        RunSpec(
            Model(str(self.root / "model"), fetch, MEMORY_BYTES, digests=str(self.folder.digests)),
            datasets,
            {one.name: Estimate(0.0, one.items * 0.01, 0.1) for one in datasets},
            memory=self.memory,
            nodes=self.nodes,
            cpus_per_node=2,
            load_s=0.0,
        ).save(self.folder)

    def ask(self, **changes: Any) -> None:
        """Ask for something else."""
        replace(load_asked(self.folder), **changes).save(self.folder)

    def of(self, name: str, **changes: Any) -> None:
        """Change what is asked of one dataset."""
        datasets = load_asked(self.folder).datasets
        self.ask(datasets=tuple(replace(one, **changes) if one.name == name else one for one in datasets))

    def let(self, what: str, text: object = "") -> None:
        """Let something go wrong, or be slow."""
        (self.root / what).write_text(str(text))

    def coordinator(self, planner: Planner = plan) -> Coordinator:
        """Return a coordinator that goes on with the run."""
        return Coordinator(self.folder, self.scheduler, SystemClock(), planner)

    def run(self, look: Callable[[Coordinator], None] | None = None) -> Coordinator:
        """Run to the end."""
        run = self.coordinator()
        run.run(poll_s=0.05, look=look)
        return run

    def ran(self, kind: str) -> list[list[str]]:
        """Return what ran of a kind, a line of words each, without the kind."""
        path = self.root / "ran"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split()[1:] for line in lines if line.startswith(f"{kind} ")]

    def times(self, kind: str) -> Counter[str]:
        """Return how often each piece or dataset ran."""
        width = {"infer": 3, "metric": 1, "fetch": 1}[kind]
        return Counter(" ".join(words[:width]) for words in self.ran(kind))

    def scores(self) -> dict[str, float]:
        """Return the scores that there are."""
        found = {one.name: self.folder.score(one.name) for one in load_asked(self.folder).datasets}
        return {name: json.loads(path.read_bytes())["score"] for name, path in found.items() if path.exists()}

    def left_in_memory(self) -> list[str]:
        """Return what lies in the nodes' memory."""
        return sorted(str(path.relative_to(self.root)) for path in (self.root / "memory").rglob("*"))

    def close(self) -> None:
        """End all jobs."""
        for job in self.cluster.jobs():
            self.cluster.cancel(job.id)
        deadline = time.monotonic() + 15
        while any(not job.state.ended for job in self.cluster.jobs()) and time.monotonic() < deadline:
            time.sleep(0.05)


def main(root: Path, dies_at: int) -> None:
    """Go on with the run of a folder; die right before a write to the journal for an odd number, right after for an even one."""
    world = World(root)
    append, writes = files.append, 0

    def mortal(path: Path, record: object) -> None:
        nonlocal writes
        writes += 1
        if writes == dies_at and dies_at % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        append(path, record)
        if writes == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    files.append = mortal
    world.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
