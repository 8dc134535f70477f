"""What a rerun loses is told as it is: pieces that a program passes over are not lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.recover.job_program import programs_of
from assistant.recover.source.reruns import marks_what_is_there, skips_what_is_there
from assistant.recover.start_costs import cost_of_beginning
from tests.unit.logged_job import job_in, write

LISTED = """import os
out = "pieces"
there = [name for name in os.listdir(out) if name.endswith(".npy")]
for part in range(64):
    name = f"part_{part}.npy"
    if name in there: continue
    with open(out + "/" + name, "wb") as piece:
        piece.write(b"x")
"""
TESTED = """from pathlib import Path
for scene in Path("raw").glob("*.exr"):
    target = Path("done") / scene.name
    if target.exists():
        continue
    render(scene).save(target)
"""
ONLY_MISSING = """import os
for clip in clips:
    if not os.path.isfile(clip.replace(".mp4", ".feat")):
        features(clip).dump(clip.replace(".mp4", ".feat"))
"""
BATCHES = """import os
for step in range(100):
    if step < begin: continue
    model.save("w.pt")
"""
READS = """import os
for path in paths:
    if not os.path.exists(path): continue
    total += len(open(path).read())
"""


@pytest.mark.parametrize(
    ("program", "line"), [(LISTED, 6), (TESTED, 4), (ONLY_MISSING, 3), (BATCHES, 0), (READS, 0), ("for x in (:", 0)]
)
def test_a_loop_that_leaves_out_what_is_there_is_known(program: str, line: int, tmp_path: Path) -> None:
    write(tmp_path / "pieces.py", program)
    programs = programs_of(job_in(tmp_path, "python pieces.py"))
    assert skips_what_is_there(programs) == (f"pieces.py:{line}" if line else "")
    cost = cost_of_beginning(job_in(tmp_path, "python pieces.py"), None, 2.0, programs)
    assert ("passes over the pieces that are there" in cost) == bool(line)
    assert "step 0" not in cost


MARKED = """import os, subprocess
for task in todo:
    if os.path.exists(task["out"]) and os.path.exists(task["out"] + ".ok"):
        task["state"] = "done"
for task in todo:
    if task["state"] == "wait" and ready(task):
        subprocess.run(["sbatch", task["script"]])
"""


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (MARKED, 3),
        (MARKED.replace('== "wait"', '== "done"'), 0),  # what is finished is started
        (MARKED.replace('["state"] = "done"', '["seen"] = "done"'), 0),
        (MARKED.replace("os.path.exists", "ready"), 0),
    ],
)
def test_a_program_that_marks_what_is_there_starts_only_the_others(program: str, line: int, tmp_path: Path) -> None:
    write(tmp_path / "flow.py", program)
    programs = programs_of(job_in(tmp_path, "python flow.py"))
    assert marks_what_is_there(programs) == (f"flow.py:{line}" if line else "")


def test_a_module_of_the_package_that_a_program_belongs_to_is_read_with_it(tmp_path: Path) -> None:
    write(tmp_path / "net" / "cv.py", "from net.h import keep\nkeep('folds/fold1/w.npz')\n")
    write(tmp_path / "net" / "h.py", "def keep(path):\n    with open(path, 'wb') as file:\n        file.write(b'x')\n")
    (program,) = programs_of(job_in(tmp_path, "python -m net.cv"))
    assert [Path(module.path).name for module in program.modules] == ["h.py"]
