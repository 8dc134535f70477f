"""The bench that sets the embedded model beside the prototype: its generator is read from its folder, or said to be missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from assistant.content.reasons import reasons
from assistant.ports import LineScore
from bench import prototype
from bench.encoder import Excerpt, judged

GENERATOR = """
ROOT = {"NVLinkError": ["the mesh is broken {n}"], "OSError": ["FUSE process of /mnt/a died, software caused connection abort"]}

def excerpt(chance, split, name):
    assert split == "ood"
    return ["step 1", ROOT[name][-1].replace("{n}", str(chance.randint(1, 9))), "srun: task 1 exited"], 1, name
"""


class Words:
    """Takes every line with a word for the root of one reason."""

    name = "words"

    def __init__(self, word: str, reason: str) -> None:
        self._word, self._reason = word, reason

    def rank(self, lines: Sequence[str]) -> Sequence[LineScore]:
        return [LineScore(float(self._word in line), {self._reason: 0.9, "hang": 0.0}) for line in lines]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gen.py").write_text(GENERATOR, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("NVLinkError", "nvlink_error"), ("S3StorageError", "s3_storage_error"), ("OSError", "os_error"), ("ECCError", "ecc_error")],
)
def test_names_of_the_paper_are_our_reasons(theirs: str, ours: str) -> None:
    assert prototype.reason_of(theirs) == ours
    assert ours in reasons()


def test_a_name_that_is_none_of_our_reasons_is_refused() -> None:
    with pytest.raises(ValueError, match="GremlinError"):
        prototype.reason_of("GremlinError")


def test_every_reason_gets_as_many_excerpts_and_the_same_seed_gives_the_same(folder: Path) -> None:
    found = prototype.excerpts(folder, each=4)
    assert [case.reason for case in found] == ["nvlink_error"] * 4 + ["os_error"] * 4
    assert found == prototype.excerpts(folder, each=4)
    assert found != prototype.excerpts(folder, each=4, seed=1)


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_wordings_like_those_of_our_training_are_told_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prototype.report(folder, {"words": Words("mesh", "nvlink_error")}) == 0
    said = capsys.readouterr().out
    assert "1 are like a line of our training, in 30 excerpts" in said
    assert "os_error: 1, as" in said
    assert "nvlink_error: none" in said
    assert "all 60: root 0.5, reason 0.5, of the root line 0.5; 50.0% right at p >= 0.9, 100.0% coverage" in said
    assert "the 30 unlike: root 1.0, reason 1.0" in said


def test_figures_tell_how_often_a_ranker_is_sure_and_then_right() -> None:
    class Torn(Words):
        def rank(self, lines: Sequence[str]) -> Sequence[LineScore]:
            return [LineScore(1.0, {"hang" if "other" in line else "os_error": 0.9 if "sure" in line else 0.89}) for line in lines]

    lines = ["sure", "sure too", "sure of the other", "not certain", "no other"]
    found = judged([Excerpt([line], 0, "os_error") for line in lines], Torn("", ""))
    assert str(found) == "root 1.0, reason 0.6, of the root line 0.6; 66.7% right at p >= 0.9, 60.0% coverage"


def test_a_missing_generator_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prototype.report(tmp_path, {}) == 1
    assert f"skipped: no generator at {tmp_path / 'gen.py'}" in capsys.readouterr().out
