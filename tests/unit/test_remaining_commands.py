"""What remains of a pipeline whose training is over, and what it would delete if it were submitted whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.engine.evidence.job_sources import remainder_of, with_remaining_commands
from assistant.records import Diagnosis, Job, JobState
from tests.unit.logged_job import job_in, write

MAKEFILE = """VERSION := 3.2
.PHONY: all clean data train export
all: clean data train export publish
clean:
\trm -rf work
data: ; mkdir -p work
train:
\tpython3 scripts/train.py work/model
export:
\tpython3 scripts/export.py work/model/model-best registry/$(VERSION)
publish:
\t@echo done
"""
SHELL = """set -euo pipefail
OUT=runs/it_s13
rm -rf "$OUT"
mkdir -p "$OUT"
echo "== train"
python3 -u train.py --out "$OUT"
python3 -u export_onnx.py --checkpoint "$OUT/model_final.pt" --output "$OUT/it.onnx"
cp "$OUT/it.onnx" demo_share/
"""
SPACY = (
    "E    #       LOSS TRANS...  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE \n"
    + "".join(
        f"  {n // 2}  {2000 * n:6d}  {545.88 / n:.2f}  {469.22 / n:.2f}  {30 + n}.17  30.57  29.87  0.{30 + n}\n"
        for n in range(1, 10)
    )
    + "✔ Saved pipeline to output directory\nwork/model/model-last\n"
    'Traceback (most recent call last):\n  File "{folder}/scripts/export.py", line 6, in <module>\n    os.makedirs(dst)\n'
    "  File \"<frozen os>\", line 225, in makedirs\nPermissionError: [Errno 13] Permission denied: 'registry/3.2'\n"
    "make: *** [Makefile:20: export] Error 1\n"
)
NER = (
    "".join(f"INFO - train - step {n}/200 loss {2 / n:.4f}\n" for n in range(10, 201, 10))
    + "INFO - train - Training finished. Best dev f1 0.9102. Models in runs/it_s13\n"
    'Traceback (most recent call last):\n  File "{folder}/export_onnx.py", line 8, in <module>\n    m = load(path)\n'
    "FileNotFoundError: [Errno 2] No such file or directory: 'runs/it_s13/model_final.pt'\n"
)


def of_log(folder: Path, script: str, log: str) -> tuple[Job, Diagnosis]:
    job = job_in(folder, script, log=write(folder / "slurm-812.out", log.replace("{folder}", str(folder))))
    job = replace(job, state=JobState.FAILED, exit_code=1)
    return job, diagnose(Case.from_parts(job.log, "", "", None, job, None), Knowledge.load())


def test_a_pipeline_of_make_names_its_model_the_target_that_remains_and_the_one_that_would_delete_the_model(tmp_path: Path) -> None:
    write(tmp_path / "Makefile", MAKEFILE)
    job, found = of_log(tmp_path, "make all", SPACY)
    assert (found.reason, found.tail) == ("permission_error", "export")
    assert found.summary.startswith("The training is over (✔ Saved pipeline to output directory")
    assert "its result lies at work/model/model-last" in found.summary
    advice = with_remaining_commands(found, job).advice
    assert f"What remains, in {tmp_path}, once that is mended: `make export publish`." in advice
    assert "it begins with `rm -rf work` (target clean of `make all`), and would train anew" in advice
    assert "registry/3.2" in advice


def test_a_script_names_the_commands_that_remain_and_the_file_whose_name_has_the_same_words(tmp_path: Path) -> None:
    write(tmp_path / "runs/it_s13/final_model.pt", "x")
    write(tmp_path / "runs/it_s13/best_model.pt", "x")
    job, found = of_log(tmp_path, SHELL, NER)
    advice = with_remaining_commands(found, job).advice
    assert advice.startswith("Do not start the training again: it is over.")
    assert f"{tmp_path}/runs/it_s13/final_model.pt is, of the same words" in advice
    export = "python3 -u export_onnx.py --checkpoint runs/it_s13/model_final.pt --output runs/it_s13/it.onnx"
    assert f"`{export}`; `cp runs/it_s13/it.onnx demo_share/`." in advice
    assert "it begins with `rm -rf runs/it_s13`, and would train anew" in advice


@pytest.mark.parametrize(
    ("script", "log", "makefile"),
    [
        ("srun python3 train.py", 'File "/w/train.py", line 3, in <module>', ""),  # what failed is all that it runs
        ("make train", "make: *** [Makefile:9: train] Error 1", "train:\n\tpython3 train.py\n"),
        ("make all", "make: *** [Makefile:9: gone] Error 1", MAKEFILE),
        (SHELL, "no traceback", ""),
    ],
)
def test_nothing_remains_where_the_failed_command_is_not_known_or_is_the_first(script: str, log: str, makefile: str) -> None:
    assert remainder_of(script, [log], makefile) is None


def test_a_training_that_is_not_over_is_left_as_it_is(tmp_path: Path) -> None:
    job, found = of_log(tmp_path, SHELL, NER.replace("Training finished. Best", "Best").replace("step 200/200", "step 200/400"))
    assert with_remaining_commands(found, job) == found
