"""`nightshift learn` and the embedded model: its heads learn with the rest, into the site's own file, and not in a dry run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.cli.output import Exit
from assistant.llm import embedded
from assistant.llm.encoder import SITE_HEADS
from assistant.store import Store
from tests.cli.conftest import Run

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not built: make deps-llama")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    (folder / "knowledge").mkdir(parents=True)
    monkeypatch.setenv("NIGHTSHIFT_CONTENT", str(folder))
    yield folder
    embedded.ranker.cache_clear()


@pytest.fixture
def lesson(tmp_path: Path) -> Path:
    folder = tmp_path / "lessons" / "a"
    folder.mkdir(parents=True)
    (folder / "job.log").write_text("starting\nflux capacitor 3 lost its uplink\n")
    (folder / "label.toml").write_text('reason = "network_error"\nlines = [2]\n')
    return folder.parent


@pytest.mark.usefixtures("store")
def test_the_heads_learn_what_is_remembered(cli: Run, site: Path, lesson: Path) -> None:
    said = cli("learn", "--from", lesson)
    assert (said.code, "now knows 1" in said.err) == (Exit.DONE, True), said.err
    assert (site / "knowledge" / SITE_HEADS).is_file()
    (score,) = embedded.ranker(site).rank(["flux capacitor 8 lost its uplink"])
    assert next(iter(score.reasons)) == "network_error"


def test_a_dry_run_leaves_the_heads_alone(cli: Run, store: Store, site: Path, lesson: Path) -> None:
    assert cli("learn", "--from", lesson, "--dry-run").code == Exit.DONE
    assert not (site / "knowledge" / SITE_HEADS).exists()
    assert store.memories() == []
