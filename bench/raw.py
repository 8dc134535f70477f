"""Accuracy on raw logs: whole outputs as people committed or posted them, which lie outside the repository.

    python -m bench.raw [SUITE ...] [--wrong] [--save ANSWERS.json] [--against ANSWERS.json] [--well | --alone CALIBRATION.toml]

A SUITE is a folder with labels.jsonl and one folder a case, in the format of the labelled logs; without one, `raw` of
$NIGHTSHIFT_BENCH, else ../shared/bench/raw. Besides the shares that the labelled logs' own scorer counts it prints what
only raw logs show: runs that are fine (`no_failure` of the label) and were called so, fine ones called failed, failed
ones called fine, and what a confidence is worth. `--against` lists the cases whose answer is another than in an earlier
run that was saved. `--well` writes anew, from these suites, the curve of how sure an answer is that all is well, and
`--alone` the one of verdicts of the line ranker that nothing else bears out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assistant.diagnose.case import read_labels
from assistant.diagnose.knowledge import PRIOR, Curves, Knowledge, curves, fitted
from assistant.diagnose.learning.ranked import RankerOpinion, as_toml
from bench.blind import right_action, right_line, right_reason, would_harm
from bench.diagnosis import answers, bench_folder
from bench.ranker import bare

FINE = "no_failure"
SURE = 0.95
ABSTAINED = ("unknown", "")
LEAST_IN_STEP = 4
"""Answers that a step of the curve of good ends rests on: hardly any of them is wrong, so that few tell something."""
LITTLE_SHOWN = 0.35
"""What is computed for a log of a few lines: however few of these are wrong, they prove little, so that the prior stands."""
BINS = 10
"""Of the expected calibration error; equally wide."""


@dataclass(frozen=True)
class Judged:
    """A label beside what was answered."""

    label: Mapping[str, Any]
    answer: Mapping[str, Any]

    @property
    def wrong(self) -> list[str]:
        """What is not right: `reason`, `category`, `action`, `line`, `nodes`, `cordon`."""
        label, answer = self.label, self.answer
        checks = {
            "reason": right_reason(label, answer),
            "category": answer["category"] == label["category"],
            "action": right_action(label, answer),
            "line": not label["root_cause_lines"] or right_line(label, answer),
            "nodes": set(answer["faulty_nodes"]) == set(label["faulty_nodes"]),
            "cordon": not would_harm(label, answer),
        }
        return [name for name, right in checks.items() if not right]

    @property
    def category_accepted(self) -> bool:
        """The category is that of the label, of a reason that the label accepts, or one that its author calls disputable."""
        accepted = "reason" not in self.wrong or self.answer["category"] in self.label.get("also_acceptable_categories", ())
        return "category" not in self.wrong or accepted

    @property
    def fine(self) -> bool:
        """The run is fine by its label."""
        return bool(self.label["reason"] == FINE)


def judge(suite: Path, knowledge: Knowledge) -> list[Judged]:
    """Diagnose every case of a suite as `nightshift diagnose --shipped` does: no memory, no language model."""
    labels = [json.loads(line) for line in (suite / "labels.jsonl").read_text(encoding="utf-8").splitlines() if line.strip()]
    folders = [suite / str(label["id"]).rpartition("/")[2] for label in labels]
    by_folder, _ = answers(folders, knowledge, (RankerOpinion(),))
    return [Judged(label, by_folder[str(folder)]) for label, folder in zip(labels, folders, strict=True)]


def figures(cases: Sequence[Judged]) -> Iterator[tuple[str, str]]:
    """Yield the names of the figures and their values, in the order in which they are printed."""
    yield "cases", str(len(cases))
    for name in ("reason", "category", "action"):
        yield name, f"{sum(name not in case.wrong for case in cases) / len(cases):.3f}"
    yield "category_accepted", f"{sum(case.category_accepted for case in cases) / len(cases):.3f}"
    lined = [case for case in cases if case.label["root_cause_lines"]]
    yield "line", f"{sum('line' not in case.wrong for case in lined) / max(len(lined), 1):.3f}"
    yield "node_f1", f"{_node_f1(cases):.3f}"
    yield "harmful_cordon", str(sum("cordon" in case.wrong for case in cases))
    fine = [case for case in cases if case.fine]
    failed = [case for case in cases if not case.fine]
    yield "fine_right", f"{sum(case.answer['reason'] == FINE for case in fine)}/{len(fine)}"
    yield "fine_called_failed", f"{sum(case.answer['reason'] not in {FINE, *ABSTAINED} for case in fine)}/{len(fine)}"
    called_fine = [case for case in failed if case.answer["reason"] == FINE and not right_reason(case.label, case.answer)]
    yield "failed_called_fine", f"{len(called_fine)}/{len(failed)}"
    sure = [case for case in cases if case.answer["confidence"] >= SURE]
    yield f"right_from_{SURE}", f"{sum('reason' not in case.wrong for case in sure)}/{len(sure)}"
    yield "ece", f"{expected_calibration_error(cases):.3f}"


def expected_calibration_error(cases: Sequence[Judged]) -> float:
    """Return how far confidence and share of right reasons are apart, 0 to 1, over answers that give a reason."""
    answered = [case for case in cases if case.answer["reason"] not in ABSTAINED]
    error = 0.0
    for number in range(BINS):
        inside = [case for case in answered if min(int(case.answer["confidence"] * BINS), BINS - 1) == number]
        if inside:
            error += abs(sum(case.answer["confidence"] - ("reason" not in case.wrong) for case in inside))
    return error / max(len(answered), 1)


def _node_f1(cases: Sequence[Judged]) -> float:
    pairs = [(set(case.label["faulty_nodes"]), set(case.answer["faulty_nodes"])) for case in cases]
    hits = sum(len(labelled & named) for labelled, named in pairs)
    total = sum(len(labelled) + len(named) for labelled, named in pairs)
    return 2 * hits / total if total else 1.0


def well_curve(suites: Sequence[Path], knowledge: Knowledge) -> Curves:
    """Return the shipped curves with the one of good ends fitted to these suites."""
    bare = replace(knowledge, curves=None)
    cases = [case for suite in suites for case in judge(suite, bare)]
    told = [(float(case.answer["confidence"]), "reason" not in case.wrong) for case in cases if case.answer["reason"] == FINE]
    made_from = f"{len(cases)} raw logs of strangers in {len(suites)} sets, {len(told)} of them called well"
    fit = tuple(point for point in fitted(told, LEAST_IN_STEP) if point[0] > LITTLE_SHOWN)
    return replace(curves(), well=((LITTLE_SHOWN, PRIOR), *fit), well_made_from=made_from)


def alone_curve(suites: Sequence[Path], knowledge: Knowledge) -> Curves:
    """Return the shipped curves with the one of the line ranker alone fitted to these suites.

    All signatures are taken away: what it answers then rests on wording alone, as on a log of which no rule knows a line.
    """
    shipped = curves()
    opinion = RankerOpinion(table=replace(shipped, alone=()))
    labels = [label for suite in suites for label in read_labels(suite)]
    by_folder, _ = answers([label.folder for label in labels], bare(knowledge), (opinion,))
    pairs = [(label, by_folder[str(label.folder)]) for label in labels]
    guessed = [(label, answer) for label, answer in pairs if answer["by"] == "model"]
    verdicts = [(float(answer["confidence"]), answer["reason"] in (label.reason, *label.also)) for label, answer in guessed]
    right = sum(is_right for _, is_right in verdicts)
    made_from = f"{len(verdicts)} verdicts, {right} right, on {len(labels)} logs in {len(suites)} sets without any signature"
    return replace(shipped, alone=fitted(verdicts), alone_made_from=made_from)


def report(case: Judged) -> str:
    """Return the lines about a case that is not right."""
    label, answer = case.label, case.answer
    lines = [f"    {line['file']}:{line['line']} [{line['rule']}] {line['text'][:110]}" for line in answer["root_cause"][:3]]
    wanted = f"{label['reason']} {label['action']} {label['root_cause_lines'][:6]} {label['faulty_nodes']}"
    got = f"{answer['reason']} {answer['action']} {answer['faulty_nodes']} {answer['confidence']:.2f}"
    return "\n".join([f"  {label['id']} {','.join(case.wrong)}: want {wanted}: got {got}", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of every suite."""
    parser = argparse.ArgumentParser(prog="python -m bench.raw", description="Accuracy on raw logs.")
    parser.add_argument("suites", nargs="*", type=Path, metavar="SUITE")
    parser.add_argument("--wrong", action="store_true", help="print every case that is not right")
    parser.add_argument("--save", type=Path, help="write what was answered")
    parser.add_argument("--against", type=Path, help="list the cases that changed since the answers saved there")
    parser.add_argument("--well", type=Path, metavar="CALIBRATION.toml", help="write the curve of good ends anew")
    parser.add_argument("--alone", type=Path, metavar="CALIBRATION.toml", help="write the curve of the line ranker alone anew")
    options = parser.parse_args(arguments)
    suites = options.suites or [bench_folder() / "raw"]
    knowledge = Knowledge.load()
    if options.well:
        options.well.write_text(as_toml(well_curve(suites, knowledge)), encoding="utf-8")
        return 0
    if options.alone:
        options.alone.write_text(as_toml(alone_curve(suites, knowledge)), encoding="utf-8")
        return 0
    before = json.loads(options.against.read_text(encoding="utf-8")) if options.against else {}
    after: dict[str, dict[str, Any]] = {}
    for suite in suites:
        if not (suite / "labels.jsonl").is_file():
            print(f"{suite}: not here; a folder with labels.jsonl was wanted (NIGHTSHIFT_BENCH names the labelled logs' folder)")
            continue
        cases = judge(suite, knowledge)
        print(f"{suite.name:12}", "  ".join(f"{name} {value}" for name, value in figures(cases)))
        for case in cases:
            key = f"{suite.resolve()}/{case.label['id']}"
            after[key] = {"reason": case.answer["reason"], "action": case.answer["action"], "wrong": case.wrong}
            if options.wrong and case.wrong:
                print(report(case))
            if options.against and key in before and before[key] != after[key]:
                print(f"  changed {case.label['id']}: {before[key]} -> {after[key]}")
    if options.save:
        options.save.write_text(json.dumps(after, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
