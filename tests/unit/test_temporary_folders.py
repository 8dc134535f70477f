"""A folder that a program removes whenever it ends holds no checkpoint, wherever else it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import programs_of
from tests.unit.test_written_files import job

WRITES = "with open(os.path.join(work, f'part-{n}.bin'), 'wb') as f:\n        f.write(bytes(90))\n"
BEGIN = "import atexit, os, shutil, tempfile\nwork = '/scratch/tok_' + os.environ['SLURM_JOB_ID']\n"
LOOP = f"for n in range(9):\n    {WRITES}"
INDENTED = f"    for n in range(9):\n        {WRITES.replace(chr(10) + '    ', chr(10) + '        ')}"
SOURCES = {
    "removed in the end, whatever happened": (
        f"{BEGIN}try:\n{INDENTED}finally:\n    shutil.rmtree(work, ignore_errors=True)\n",
        False,
    ),
    "removed at exit": (f"{BEGIN}atexit.register(shutil.rmtree, work, True)\n{LOOP}", False),
    "removed before the work": (f"{BEGIN}shutil.rmtree(work, ignore_errors=True)\n{LOOP}", True),
    "removed where it went well": (
        f"{BEGIN}try:\n{INDENTED}finally:\n    if work:\n        shutil.rmtree(work, ignore_errors=True)\n",
        True,
    ),
    "another folder is removed": (f"{BEGIN}try:\n{INDENTED}finally:\n    shutil.rmtree('/scratch/cache')\n", True),
    "a file is removed": (f"{BEGIN}try:\n{INDENTED}finally:\n    os.remove(work + '/lock')\n", True),
    "kept": (f"{BEGIN}{LOOP}", True),
}


@pytest.mark.parametrize("case", SOURCES)
def test_a_folder_that_the_program_removes_when_it_ends_is_none_that_it_saves_in(case: str, tmp_path: Path) -> None:
    source, saves = SOURCES[case]
    (tmp_path / "x.py").write_text(source)
    folders = [str(save.folder) for save in save_folders(programs_of(job(tmp_path, "python3 x.py", id="812", raw_id="812")))]
    assert folders == (["/scratch/tok_812"] if saves else [])


def test_a_folder_that_is_there_behind_a_kill_is_looked_at(tmp_path: Path) -> None:
    source = SOURCES["removed in the end, whatever happened"][0].replace("'/scratch/tok_'", f"'{tmp_path}/tok_'")
    (tmp_path / "x.py").write_text(source)
    (tmp_path / "tok_812").mkdir()
    programs = programs_of(job(tmp_path, "python3 x.py", id="812", raw_id="812"))
    assert [save.folder for save in save_folders(programs)] == [tmp_path / "tok_812"]
