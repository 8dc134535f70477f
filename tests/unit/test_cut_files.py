"""A data file that is shorter than all its siblings is named where data could not be read; the last of a series is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.engine.evidence.missing_data import cut_file, with_cut_file
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, JobSpec, JobState

WHOLE = 57_600


def laid_out(folder: Path, sizes: dict[str, int]) -> None:
    for name, size in sizes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(size))


@pytest.mark.parametrize(
    ("sizes", "asked", "cut"),
    [
        ({"s0/t.bin": WHOLE, "s1/t.bin": WHOLE, "s2/t.bin": 26_214, "s3/t.bin": WHOLE}, "s2/t", "s2/t.bin"),
        ({"s0/t.bin": WHOLE, "s1/t.bin": WHOLE, "s2/t.bin": 26_214}, "s2/t", ""),  # the last one may be shorter
        ({"s0/t.bin": WHOLE, "s1/t.bin": 26_214, "s2/t.bin": 40_000, "s3/t.bin": WHOLE}, "s1/t.bin", ""),  # they are not alike
        ({"s0/t.bin": WHOLE, "s1/t.bin": 26_214}, "s0/t.bin", ""),
        ({"d/p-00.jsonl": WHOLE, "d/p-01.jsonl": 12, "d/p-02.jsonl": WHOLE, "d/notes.txt": 5}, "d/p-01.jsonl", "d/p-01.jsonl"),
        ({"d/p-00.jsonl": WHOLE, "d/p-01.jsonl": WHOLE, "d/p-02.jsonl": 12}, "d/p-02.jsonl", ""),
        ({"d/p-00.jsonl": WHOLE, "d/p-01.jsonl": WHOLE - 900, "d/p-02.jsonl": WHOLE}, "d/p-01.jsonl", ""),  # nearly as long
        ({"d/p-00.jsonl": WHOLE}, "d/gone.jsonl", ""),
    ],
)
def test_a_file_is_cut_short_where_all_its_siblings_are_alike_and_longer(
    sizes: dict[str, int], asked: str, cut: str, tmp_path: Path
) -> None:
    laid_out(tmp_path, sizes)
    found = cut_file(tmp_path / asked)
    assert (str(found.path.relative_to(tmp_path)) if found is not None else "") == cut


def test_the_owner_hears_which_file_is_short_and_by_how_much(tmp_path: Path) -> None:
    laid_out(tmp_path, {f"data/shard{number}/train.en.bin": 26_214 if number == 2 else WHOLE for number in range(4)})
    job = Job("1", "wmt", "", JobState.FAILED, "", (), None, tmp_path, None, None, None, 1, None, spec=JobSpec("wmt", ""))
    said = "The last file that the log says it read is data/shard2/train.en (job.log:46)."
    cited = Citation("job.log", 65, "ValueError: buffer is smaller than requested size", "x")
    found = Diagnosis(
        "dataset_loading_error", Category.FRAMEWORK, Action.FIX_AND_RESUBMIT, 0.85, DecidedBy.RULE, (cited,), (), (), said, "A."
    )
    advice = with_cut_file(found, job).advice
    assert f"{tmp_path}/data/shard2/train.en.bin has 26,214 bytes, and that of shard0, shard1, shard3 at least 57,600" in advice
    assert advice.endswith("A.")
