"""What `job check` understands of batch scripts of strangers."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.recover.job_reading import JobReading, Weight, read_script, sbatch_options
from assistant.recover.resume.means import ResumeMeans

FILE = Path(__file__).parents[1] / "cases" / "job_check" / "scripts.toml"
SCRIPTS: list[dict[str, Any]] = tomllib.loads(FILE.read_text(encoding="utf-8"))["script"]


WORK = Path("/home/ada/run")


def read_case(case: dict[str, Any]) -> JobReading:
    files = {str(WORK / name): text for name, text in case.get("files", {}).items()}
    return read_script(
        case["text"].lstrip(), name="train.sbatch", arguments=case.get("arguments", ()), work_dir=WORK, read=files.get
    )


@pytest.mark.parametrize("case", SCRIPTS, ids=[case["name"] for case in SCRIPTS])
def test_a_script_is_understood_as_its_label_says(case: dict[str, Any]) -> None:
    reading = read_case(case)
    assert reading.checkpoint_folder == (str(WORK / case["checkpoints"]) if case["checkpoints"] else "")
    assert reading.resume.means == case["resume"], reading.resume.sentence
    assert [log.path for log in reading.logs] == [str(WORK / log) for log in case["logs"]]
    assert reading.ready is case["ready"], reading.gaps
    assert reading.shape == case.get("shape", reading.shape)
    assert "gap" not in case or any(case["gap"] in gap.text for gap in reading.gaps), reading.gaps
    if "line" in case:
        assert next(gap.line for gap in reading.gaps if gap.line) == case["line"]


def test_each_gap_that_blocks_says_what_or_how_to_mend_it() -> None:
    for case in SCRIPTS:
        for gap in read_case(case).gaps:
            assert gap.text
            assert "\n" not in gap.line
            assert gap.line.startswith(("#SBATCH --", "#NIGHTSHIFT ", "")) or gap.weight is Weight.IMPROVES


@pytest.mark.parametrize(
    "text", ["", "\0\0", "#!/bin/bash\n#SBATCH --output='unclosed\n", "#SBATCH\n#SBATCH --\n#SBATCH -\n", "a" * 100_000]
)
def test_no_script_breaks_the_reader(text: str) -> None:
    assert read_script(text).resume.means is ResumeMeans.UNKNOWN


def test_the_last_word_on_an_option_counts_and_short_ones_are_long_ones() -> None:
    script = "#!/bin/bash\n#SBATCH -N4 -p gpu\n\n# a comment\n#SBATCH --nodes 8 --exclusive\n#SBATCH -t1:00:00\n"
    assert sbatch_options(script) == {"nodes": "8", "partition": "gpu", "exclusive": "", "time": "1:00:00"}
