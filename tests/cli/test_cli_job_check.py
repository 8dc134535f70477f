"""`nightshift job check` from a shell: output and exit codes for CI."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run

READY = """#!/bin/bash
#SBATCH --output=run-%j.log
#NIGHTSHIFT checkpoints=ckpt resume="--load {checkpoint}" owner=ada
srun python train.py
"""


def test_a_script_that_can_be_brought_back_passes(cli: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text(READY, encoding="utf-8")
    said = cli("job", "check", str(script))
    assert (said.code, "ready: nothing in the script would improve this" in said.out) == (0, True)
    assert f"sbatch --parsable {script}" in said.out


def test_a_script_that_would_start_over_fails_with_the_line_that_mends_it(cli: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text("#!/bin/bash\npython pretrain_gpt.py --save /ckpt --lr $1\n", encoding="utf-8")
    said = cli("job", "check", str(script), "--json", "--", "3e-4")
    found = json.loads(said.out)
    assert (said.code, found["ready"], found["resume"]["means"]) == (1, False, "none")
    assert found["gaps"][0]["line"] == '#NIGHTSHIFT resume="--load {checkpoint}"'
    assert found["submitted"] == f"sbatch --parsable {script} 3e-4"


def test_strict_also_fails_for_what_would_only_improve_it(cli: Run, tmp_path: Path) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text(READY.replace(" owner=ada", ""), encoding="utf-8")
    assert cli("job", "check", str(script)).code == 0
    assert cli("job", "check", str(script), "--strict").code == 1


def test_what_is_no_script_and_no_job_is_wrong_usage(cli: Run, tmp_path: Path) -> None:
    assert cli("job", "check", str(tmp_path / "missing.sbatch")).code == 2
    assert cli("job", "check", "no-such-job").code in (1, 2)
