"""Accuracy on the blind suites: labelled cases that were written without sight of the signatures, kept since as regression data.

    python -m bench.blind [--wrong]

Each suite under tests/cases/ has a labels.jsonl; docs/accuracy.md tells what the first run of each gave.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.weighing.rivals import Opinion
from bench.diagnosis import answers

CASES = Path(__file__).resolve().parents[1] / "tests" / "cases"
SHOWN_LINES = 3
"""Root-cause lines of an answer that count."""
NEAR = 2
"""How far from a labelled line an answer may point."""


@dataclass(frozen=True)
class Figures:
    """Shares of right answers of one suite."""

    cases: int
    reason: float
    action: float
    line: float
    harmful: tuple[str, ...]
    """Cases whose answer would cordon a node that is not to blame."""
    wrong: tuple[str, ...]
    """Cases with a wrong reason or action."""


def suites() -> list[Path]:
    """Return the folders of all blind suites."""
    return sorted(path.parent for path in CASES.glob("blind*/labels.jsonl"))


def measure(suite: Path, knowledge: Knowledge, opinions: Sequence[Opinion] = ()) -> Figures:
    """Diagnose every case of a suite and compare with its labels."""
    labels = [json.loads(line) for line in (suite / "labels.jsonl").read_text(encoding="utf-8").splitlines()]
    folders = {label["id"]: suite / label["id"].rpartition("/")[2] for label in labels}
    found, _ = answers(list(folders.values()), knowledge, opinions)
    pairs = [(label, found[str(folders[label["id"]])]) for label in labels]
    lined = [pair for pair in pairs if pair[0]["root_cause_lines"]]
    return Figures(
        cases=len(pairs),
        reason=sum(right_reason(*pair) for pair in pairs) / len(pairs),
        action=sum(right_action(*pair) for pair in pairs) / len(pairs),
        line=sum(right_line(*pair) for pair in lined) / max(len(lined), 1),
        harmful=tuple(label["id"] for label, given in pairs if would_harm(label, given)),
        wrong=tuple(label["id"] for label, given in pairs if not (right_reason(label, given) and right_action(label, given))),
    )


def right_reason(label: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Tell whether an answer has the reason of the label, or one that it accepts, too."""
    return answer["reason"] in {label["reason"], *label["also_acceptable"]}


def right_action(label: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Tell whether an answer has the action of the label, or one that it accepts, too."""
    return answer["action"] in {label["action"], *label["also_acceptable_actions"]}


def right_line(label: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Tell whether one of the first lines shown is near a labelled one; labels say `file:line`, or a line of job.log."""
    wanted = [str(line).rpartition(":") for line in label["root_cause_lines"]]
    return any(
        shown["file"] == (file or "job.log") and abs(shown["line"] - int(number)) <= NEAR
        for shown in answer["root_cause"][:SHOWN_LINES]
        for file, _, number in wanted
    )


def would_harm(label: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Tell whether an answer would cordon a node that is not to blame."""
    return answer["action"] == "cordon_and_restart" and bool(set(answer["faulty_nodes"]) - set(label["faulty_nodes"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of every suite."""
    parser = argparse.ArgumentParser(prog="python -m bench.blind", description="Accuracy on the blind suites.")
    parser.add_argument("--wrong", action="store_true", help="print every wrong case")
    options = parser.parse_args(arguments)
    knowledge = Knowledge.load()
    for suite in suites():
        got = measure(suite, knowledge)
        shares = f"reason {got.reason:.3f}  action {got.action:.3f}  line {got.line:.3f}  harmful_cordon {len(got.harmful)}"
        print(f"{suite.name:16} cases {got.cases:4}  {shares}")
        for name in got.wrong if options.wrong else ():
            print(f"  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
