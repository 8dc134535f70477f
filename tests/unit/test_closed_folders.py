"""Folders above a refused path that keep the owner of a job out: which are proven to, and who can open them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from assistant.engine.evidence import permissions
from assistant.engine.evidence.permissions import closed_folder, with_closed_path
from assistant.records import Action, Category, DecidedBy, Diagnosis, Job, JobState

OPEN = "root:0:755"
JOB = Job("7", "train", "ada", JobState.FAILED, "gpu", ("n1",), None, Path("/shared/ada"), None, None, None, 1, None)
DENIED = "PermissionError: [Errno 13] Permission denied: '/opt/ml/bin/python'"


def state(path: str, *owners: str, stands: str = "") -> dict[str, object]:
    return {"node": "n1", "path": path, "real": path, "stands": stands or path, "owners": list(owners)}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        # of the path itself and each folder above it, up to /
        (state("/root/venv/bin/python", OPEN, OPEN, OPEN, "root:0:700", OPEN), "the folder /root (owner root, mode 0700)"),
        (
            state("/data/eve/x/a.bin", "eve:9:644", "eve:9:755", "eve:9:740", OPEN, OPEN),
            "the folder /data/eve (owner eve, mode 0740)",
        ),
        # what is not there yet: the folder that stands may itself be closed
        (state("/data/eve/new", "eve:9:700", OPEN, OPEN, stands="/data/eve"), "the folder /data/eve (owner eve, mode 0700)"),
        # whether she is of the group is not known
        (state("/data/eve/x/a.bin", "eve:9:644", "eve:9:755", "eve:9:750", OPEN, OPEN), ""),
        # her own folder without its x
        (state("/home/ada/a/b", "ada:5:644", "ada:5:600", OPEN, OPEN), ""),
        # everybody may enter; what is refused is the file itself
        (state("/data/eve/a.bin", "eve:9:600", "eve:9:755", OPEN, OPEN), ""),
        # nothing is known
        (state("/data/eve/a.bin"), ""),
        (state("/data/eve/a.bin", "eve-600", OPEN), ""),
    ],
)
def test_a_closed_folder_is_named_where_its_rights_prove_it(row: dict[str, object], words: str) -> None:
    sentence = closed_folder(row, JOB)
    assert words in sentence
    assert bool(sentence) is bool(words)


def test_groups_count_where_the_account_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "account_of", lambda name: SimpleNamespace(gid=5, groups=(5, 9)))
    member = replace(JOB, account="ada")
    by_group = state("/data/eve/a.bin", "eve:9:644", "eve:9:750", OPEN, OPEN)
    assert closed_folder(by_group, member) == ""
    assert "chmod o+x /data/eve" in closed_folder(state("/data/eve/a.bin", "eve:8:644", "eve:8:750", OPEN, OPEN), member)
    assert "chmod g+x /data/eve" in closed_folder(state("/data/eve/a.bin", "eve:9:644", "eve:9:705", OPEN, OPEN), member)
    assert "chmod u+x /home/ada/a" in closed_folder(state("/home/ada/a/b", "ada:5:644", "ada:5:600", OPEN, OPEN), member)


def test_nothing_is_said_of_root_or_of_another_error() -> None:
    row = state("/root/venv/bin/python", OPEN, OPEN, OPEN, "root:0:700", OPEN)
    assert closed_folder(row, replace(JOB, user="root")) == ""
    before = Diagnosis(
        "permission_error", Category.SCRIPT, Action.FIX_AND_RESUBMIT, 0.9, DecidedBy.RULE, (), (), (), "It failed.", "chmod +x it."
    )
    assert with_closed_path(before, row, JOB, "OSError: [Errno 28] No space left on device") == before
    after = with_closed_path(before, row, JOB, DENIED)
    assert "chmod +x it" not in after.advice
    assert "root has to open it (chmod o+x /root)" in after.advice
