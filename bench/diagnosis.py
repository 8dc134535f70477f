"""Accuracy and time of diagnosis: on our own cases always, on the labelled suites where they lie beside the checkout.

    python -m bench.diagnosis [--wrong] [--batch 1000]

The suites are looked for in $NIGHTSHIFT_BENCH, else in ../shared/bench; their own scorer counts. Figures are ratios of cases.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from types import ModuleType
from typing import Any

from assistant.diagnose.answer import answer
from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.diagnose.weighing.rivals import Opinion

ROOT = Path(__file__).resolve().parents[1]
OWN_CASES = ROOT / "tests" / "cases" / "diagnose"


@dataclass(frozen=True)
class Suite:
    """Labelled cases and the functions of their scorer."""

    name: str
    labels: Sequence[Mapping[str, Any]]
    score: Callable[[Sequence[Mapping[str, Any]], Mapping[str, Any]], dict[str, Any]]


def bench_folder() -> Path:
    """Return where the labelled suites are looked for."""
    return Path(os.environ.get("NIGHTSHIFT_BENCH") or ROOT.parent / "shared" / "bench")


def dev_suites() -> list[Suite]:
    """Return the suites that exist; none where there is no scorer."""
    folder = bench_folder()
    scorer = folder / "score.py"
    if not scorer.is_file():
        return []
    module = _load(scorer)
    found = [path.parent for path in sorted((folder / "dev").glob("*/labels.jsonl"))]
    return [Suite(path.name, module.load(path), module.score) for path in found]


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("nightshift_score", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers(
    folders: Sequence[Path], knowledge: Knowledge, opinions: Sequence[Opinion] = ()
) -> tuple[dict[str, dict[str, Any]], list[float]]:
    """Diagnose every folder; return the answers by folder and the seconds that each took."""
    found: dict[str, dict[str, Any]] = {}
    seconds: list[float] = []
    for folder in folders:
        start = time.perf_counter()
        case = Case.from_path(folder)
        found[str(folder)] = answer(str(folder), case, diagnose(case, knowledge, opinions))
        seconds.append(time.perf_counter() - start)
    return found, seconds


def batch(count: int, knowledge: Knowledge) -> str:
    """Return the rate at which one process diagnoses many cases: of the dev suites, our own and the blind ones, in turn."""
    folders = [Path(label["folder"]) for suite in dev_suites() for label in suite.labels]
    folders += [folder for folder, _ in own_cases()]
    folders += sorted(path.parent for path in OWN_CASES.parent.glob("blind*/*/job.log"))
    start, cpu = time.perf_counter(), time.process_time()
    answers(list(islice(cycle(folders), count)), knowledge)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    return f"{count} cases in {seconds:.1f} s: {count / seconds:.0f} cases/s, {count / cpu_seconds:.0f} per CPU second"


def own_cases() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder and the expectation of each of our own cases."""
    for path in sorted(OWN_CASES.glob("*/*/case.toml")):
        yield path.parent, tomllib.loads(path.read_text(encoding="utf-8"))


def misses(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return what an answer gets wrong of an expectation: `reason`, `action`, `line`, `nodes`."""
    wrong = []
    if found["reason"] not in (expected["reason"], *expected.get("also", ())):
        wrong.append("reason")
    if found["action"] not in (expected["action"], *expected.get("also_actions", ())):
        wrong.append("action")
    lines = [str(line) if ":" in str(line) else f"job.log:{line}" for line in expected.get("lines", ())]
    shown = [f"{line['file']}:{line['line']}" for line in found["root_cause"][:3]]
    if lines and not set(lines) & set(shown):
        wrong.append("line")
    if sorted(found["faulty_nodes"]) != sorted(expected.get("nodes", ())):
        wrong.append("nodes")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.diagnosis", description="Accuracy and time of diagnosis.")
    parser.add_argument("--wrong", action="store_true", help="print every wrong case")
    parser.add_argument("--batch", type=int, default=0, metavar="CASES", help="only measure the rate over so many cases")
    options = parser.parse_args(arguments)
    knowledge = Knowledge.load()
    if options.batch:
        print(batch(options.batch, knowledge))
        return 0
    suites = dev_suites()
    for suite in suites:
        found, seconds = answers([Path(label["folder"]) for label in suite.labels], knowledge)
        figures = suite.score(suite.labels, found)
        print(_row(f"dev/{suite.name}", figures, seconds))
        if options.wrong:
            _print_wrong(suite.labels, found, suite.score)
    if not suites:
        print(f"dev suites: not here ({bench_folder()}); set NIGHTSHIFT_BENCH")
    _print_own(knowledge, wrong=options.wrong)
    return 0


def _row(name: str, figures: Mapping[str, Any], seconds: Sequence[float]) -> str:
    shares = "  ".join(f"{key} {figures[key]:.3f}" for key in ("reason", "category", "action", "line", "node_f1"))
    counts = "  ".join(f"{key} {figures[key]}" for key in ("harmful_cordon", "futile_restart", "missed_recovery"))
    return f"{name:22} cases {figures['cases']}  {shares}  {counts}  {_times(seconds)}"


def _times(seconds: Sequence[float]) -> str:
    return f"median {statistics.median(seconds) * 1e3:.0f} ms  worst {max(seconds) * 1e3:.0f} ms"


def _print_wrong(labels: Sequence[Mapping[str, Any]], found: Mapping[str, Any], score: Callable[..., dict[str, Any]]) -> None:
    for label in labels:
        given = found[str(label["folder"])]
        one = score([label], {str(label["folder"]): given})
        bad = [key for key in ("reason", "action", "line", "node_f1") if one[key] < 1] + ["harmful_cordon"] * one["harmful_cordon"]
        if bad:
            want = {
                "reason": label["reason"],
                "action": label["action"],
                "lines": label["root_cause_lines"],
                "nodes": label["faulty_nodes"],
            }
            got = {key: given[key] for key in ("reason", "action", "faulty_nodes", "confidence")}
            lines = [f"{line['file']}:{line['line']} [{line['rule']}] {line['text'][:110]}" for line in given["root_cause"][:3]]
            print(
                f"  {label['id']} {','.join(bad)}\n    want {json.dumps(want)[:300]}\n    got  {json.dumps(got)}\n    "
                + "\n    ".join(lines)
            )


def _print_own(knowledge: Knowledge, *, wrong: bool) -> None:
    cases = list(own_cases())
    if not cases:
        return
    found, seconds = answers([folder for folder, _ in cases], knowledge)
    missed = {folder: misses(expected, found[str(folder)]) for folder, expected in cases}
    shares = "  ".join(
        f"{key} {1 - sum(key in bad for bad in missed.values()) / len(cases):.3f}" for key in ("reason", "action", "line", "nodes")
    )
    print(f"{'own':22} cases {len(cases)}  {shares}  {_times(seconds)}")
    for folder, bad in missed.items():
        if wrong and bad:
            given = found[str(folder)]
            got = f"{given['reason']} {given['action']} {given['faulty_nodes']} {given['summary'][:160]}"
            print(f"  {folder.relative_to(OWN_CASES)} {','.join(bad)}: got {got}")


if __name__ == "__main__":
    sys.exit(main())
