"""Commands that read files and content: logs, checkpoints, rules, playbooks, settings. None of them needs a scheduler."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assistant.cli.output import Exit

Run = Callable[..., Any]

LOG = """iteration 1 | loss 4.2
Epoch:  10%\rEpoch: 100%
\x1b[31mRuntimeError\x1b[0m: CUDA error
iteration 2 | loss 4.1
last line"""


@pytest.fixture
def log(home: Path) -> Path:
    path = home / "job.log"
    path.write_text(LOG)
    return path


def test_the_end_of_a_log_comes_cleaned_and_numbered(cli: Run, log: Path) -> None:
    assert cli("logs", "tail", log, "-n", 4, "-N").out == (
        "2: Epoch: 100%\n3: RuntimeError: CUDA error\n4: iteration 2 | loss 4.1\n5: last line\n"
    )


def test_a_compressed_log_is_read_as_a_plain_one(cli: Run, log: Path, home: Path) -> None:
    packed = home / "job.log.gz"
    packed.write_bytes(gzip.compress(LOG.encode()))
    assert cli("logs", "tail", packed).out == cli("logs", "tail", log).out


SEARCHES: list[tuple[list[str], list[int]]] = [
    (["iteration"], [1, 4]),
    (["ITERATION", "-i"], [1, 4]),
    (["^Runtime"], [3]),
    (["line$"], [5]),
    (["nothing"], []),
    (["."], [1, 2, 3, 4, 5]),
]


@pytest.mark.parametrize(("words", "numbers"), SEARCHES)
def test_a_search_finds_each_line_once_with_its_number(cli: Run, log: Path, words: list[str], numbers: list[int]) -> None:
    said = cli("logs", "search", log, *words, "--json")
    assert said.code == Exit.DONE
    assert [found["line"] for found in said.objects] == numbers


def test_a_search_stops_at_its_limit_and_says_so(cli: Run, log: Path) -> None:
    said = cli("logs", "search", log, ".", "--limit", 2, "--no-numbers")
    assert said.out == "iteration 1 | loss 4.2\nEpoch: 100%\n"
    assert "stopped after 2 lines" in said.err


def test_a_search_counts_lines_over_many_blocks(cli: Run, home: Path) -> None:
    path = home / "long.log"
    path.write_text("".join(f"{'needle' if n % 100_000 == 0 else 'straw'} {n} {'x' * 40}\n" for n in range(1, 300_001)))
    found = cli("logs", "search", path, "needle", "--json").objects
    assert [(one["line"], one["text"].split()[1]) for one in found] == [(n, str(n)) for n in (100_000, 200_000, 300_000)]


def test_a_compressed_view_keeps_to_its_budget(cli: Run, log: Path) -> None:
    (found,) = cli("logs", "compress", log, "--budget", 400, "--json").objects
    assert found["lines"] == 5
    assert len(found["text"]) <= 400
    assert "RuntimeError" in found["text"]


@pytest.fixture
def checkpoints(home: Path) -> Path:
    """Two checkpoints of Hugging Face Trainer; the newer one was cut short."""
    folder = home / "run"
    for step in (100, 200):
        one = folder / f"checkpoint-{step}"
        one.mkdir(parents=True)
        header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
        (one / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * (16 if step == 100 else 3))
        (one / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        (one / "config.json").write_text("{}")
    return folder


def test_checkpoints_are_listed_with_what_speaks_against_them(cli: Run, checkpoints: Path) -> None:
    found = cli("checkpoints", "list", checkpoints, "--json").objects
    assert [(one["step"], one["healthy"]) for one in found][-1] == (200, False)
    assert "REFUSED" in cli("checkpoints", "list", checkpoints).out


def test_verifying_a_damaged_checkpoint_is_an_error(cli: Run, checkpoints: Path) -> None:
    said = cli("checkpoints", "verify", checkpoints, "--newest", "--json")
    assert said.code == Exit.ERROR
    assert [(one["step"], one["healthy"]) for one in said.objects] == [(200, False)]


def test_a_folder_without_checkpoints_is_an_error_to_verify(cli: Run, home: Path) -> None:
    (home / "nothing").mkdir()
    assert "no checkpoint of a known format" in cli("checkpoints", "verify", home / "nothing").err


def test_rules_can_be_listed_by_kind_and_reason(cli: Run) -> None:
    every = cli("rules", "list", "--json").objects
    filters = cli("rules", "list", "--kind", "filter", "--json").objects
    assert {one["kind"] for one in filters} == {"filter"}
    assert 0 < len(filters) < len(every)
    of_ecc = cli("rules", "list", "--reason", "ecc_error", "--json").objects
    assert {one["of"] for one in of_ecc} == {"ecc_error"}


def test_a_rule_is_shown_with_its_examples(cli: Run) -> None:
    rule = cli("rules", "list", "--kind", "signature", "--json").objects[0]
    said = cli("rules", "show", rule["id"])
    assert rule["pattern"] in said.out
    assert cli("rules", "show", rule["id"], "--json").objects[0]["examples"]


def test_every_playbook_can_be_shown(cli: Run) -> None:
    names = [one["name"] for one in cli("playbooks", "list", "--json").objects]
    assert "faulty_node" in names
    for name in names:
        assert cli("playbooks", "show", name).code == Exit.DONE


def test_a_shipped_playbook_passes_its_rehearsal(cli: Run) -> None:
    said = cli("playbooks", "try", "faulty_node", "--json")
    assert said.code == Exit.DONE
    assert all(one["passed"] for one in said.objects)


def test_a_playbook_that_names_no_tool_fails_its_rehearsal(cli: Run, home: Path) -> None:
    path = home / "mine.toml"
    path.write_text('title = "x"\nhandles = ["hang"]\n[[step]]\nuse = "cordon_nod"\nwith = { node = "n1" }\n')
    said = cli("playbooks", "try", path)
    assert said.code == Exit.ERROR
    assert "did you mean 'cordon_node'" in said.out
    assert f"{path}:3" in said.out


ON_CLUSTER = """title = "x"
handles = ["no_failure", "type_error"]
ends = "escalated"
[[step]]
name = "report"
use = "escalate"
with = { why = "the site's own word on job {incident.job}" }
then = "escalated"
[[fixture]]
name = "ours"
reason = "type_error"
ends = "escalated"
[fixture.cluster]
runs = [{ fails_at = 50, lines = ["TypeError: unsupported operand type(s) for +: 'float' and 'NoneType'"] }]
changes = []
note = "the site's own word on job 1"
"""


@pytest.mark.parametrize("place", ["mine.toml", "site/playbooks/mine.toml"])
def test_a_sites_playbook_is_played_on_the_cluster_before_it_is_installed(cli: Run, home: Path, place: str) -> None:
    path = home / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ON_CLUSTER)
    (home / "config.toml").write_text(f'content = "{home / "site"}"\n')
    said = cli("--config", home / "config.toml", "playbooks", "try", path)
    assert (said.code, said.err) == (Exit.DONE, "")
    assert "passed  ours" in said.out
    assert "job 1 escalated: the site's own word on job 1" in said.out


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("changes = []", 'changes = ["submit 2"]', "changed nothing instead of submit 2"),
        ("the site's own word on job 1", "another word", "not 'another word'"),
        ('reason = "type_error"', 'reason = "no_failure"', "diagnosed type_error instead of no_failure"),
        ('ends = "escalated"\n[f', 'ends = "closed"\n[f', "ended escalated instead of closed"),
        ("changes = []", 'changes = []\nlater = ["recovered"]', "later incidents ended nothing instead of recovered"),
        ("changes = []", 'changes = []\nrestart_step = 40\nexcluded = ["node02"]', "began with step 0 instead of 40"),
        ("changes = []", "changes = []\nskipped = [61, 70]", "leaves out the data of steps () instead of (61, 70)"),
        ('"no_failure", "type_error"', '"no_failure"', "chose playbook owner for type_error"),
        ("fails_at = 50", "says_at = 50", "no incident was opened"),
        ("changes = []", 'changes = []\ndirectives = "act=nver"', "directives: line 1: act must be one of auto, ask, never"),
    ],
)
def test_a_fixture_that_goes_another_way_on_the_cluster_fails(cli: Run, home: Path, before: str, after: str, says: str) -> None:
    path = home / "mine.toml"
    path.write_text(ON_CLUSTER.replace(before, after))
    said = cli("playbooks", "try", path, "--json")
    assert said.code == Exit.ERROR
    assert any(says in problem for problem in said.objects[0]["problems"]), said.out


def test_settings_say_where_they_come_from(cli: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = home / "config.toml"
    config.write_text("[watch]\npoll_s = 5\n")
    monkeypatch.setenv("NIGHTSHIFT_LEASE_S", "60")
    said = cli("--config", config, "--store", home / "a.db", "config", "show", "--json")
    origins = {one["key"]: (one["value"], one["origin"]) for one in said.objects}
    assert origins["watch.poll_s"] == (5.0, f"{config}:2")
    assert origins["lease_s"] == (60.0, "NIGHTSHIFT_LEASE_S")
    assert origins["store"] == (str(home / "a.db"), "command line")
    assert origins["scheduler"] == ("local", "default")


def test_shown_settings_can_be_read_again(cli: Run, home: Path) -> None:
    config = home / "config.toml"
    config.write_text('scheduler = "local"\ncommand_timeout_s = 7.5\n')
    again = home / "again.toml"
    again.write_text(cli("--config", config, "config", "show", "--manual").out)
    assert "command_timeout_s = 7.5" in cli("--config", again, "config", "show").out


@pytest.mark.parametrize(
    ("files", "given", "name"),
    [
        (("run-7.out",), "run-7.out", "{home}/run-7.out"),
        (("one/train.err",), "one", "train.err"),
        (("two/job.log",), "two", "job.log"),
        (("both/a.out", "both/a.err"), "both", "a.out"),
    ],
)
def test_a_diagnosis_names_the_log_as_people_know_it(cli: Run, home: Path, files: tuple[str, ...], given: str, name: str) -> None:
    for number, file in enumerate(files):
        path = home / file
        path.parent.mkdir(exist_ok=True)
        path.write_text("epoch 1\n" if number else "epoch 1\nKeyError: 'labels'\nTraceback ends here: exit code 1\n")
    said = cli("diagnose", "--json", home / given)
    [found] = said.objects
    wanted = name.format(home=home)
    assert {cited["file"] for cited in found["root_cause"]} == {wanted}
    assert f"({wanted}:" in found["summary"]
