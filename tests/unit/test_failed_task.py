"""On which node an error was raised that no line places: the one whose task alone failed by itself, as srun says."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose

ERROR = "FileNotFoundError: [Errno 2] No such file or directory: '/nvme/ada/tok/part_0.bin'\n"
TRACE = 'Traceback (most recent call last):\n  File "/work/fit.py", line 9, in <module>\n    open(path)\n'
FAILED = "srun: error: n2: task 1: Exited with exit code 1\n"
ENDED = "slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-03-01T12:00:00 ***\nsrun: error: n1: task 0: Terminated\n"


def nodes_of(folder: Path, text: str) -> list[str | None]:
    (folder / "job.log").write_text(text)
    return [place.node for place in diagnose(Case.from_path(folder / "job.log"), Knowledge.load()).where]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (f"step 1 loss 2.0\n{TRACE}{ERROR}{FAILED}{ENDED}", ["n2"]),
        (f"1: {TRACE}1: {ERROR}{FAILED}{ENDED}".replace("\n ", "\n1:  "), ["n2"]),
        # two nodes failed by themselves: either may have raised it
        (f"step 1 loss 2.0\n{TRACE}{ERROR}{FAILED}srun: error: n1: task 0: Exited with exit code 1\n", []),
        (f"step 1 loss 2.0\n{TRACE}{ERROR}", []),
    ],
)
def test_an_error_without_a_place_is_of_the_task_that_failed_alone(text: str, nodes: list[str], tmp_path: Path) -> None:
    assert [node for node in nodes_of(tmp_path, text) if node is not None] == nodes
