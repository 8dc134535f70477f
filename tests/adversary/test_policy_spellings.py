"""Every spelling of a name in a policy holds for what it names, or is refused when the policy is read; the cases are data."""

from __future__ import annotations

import json
import pwd
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.accounts import both_names
from assistant.cli.main import main
from assistant.errors import ContentError
from assistant.gate.targets import reach_of
from assistant.policy import Request, Situation, decide, load_policy
from assistant.policy.names import covers_account, covers_job, covers_place
from assistant.records import Job, JobState, Node, NodeState, Risk, Verdict
from tests.adversary.conftest import write
from tests.unit.gate_world import START, World

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "adversary" / "policy_names.toml").read_text(encoding="utf-8"))
TABLES = {
    "jobs": '[[protected]]\njobs = [{name}]\nwhy = "x"\n',
    "users": '[[protected]]\nusers = [{name}]\nwhy = "x"\n',
    "nodes": '[[window]]\nname = "w"\ndays = ["mon"]\nnodes = [{name}]\n',
    "partitions": '[[window]]\nname = "w"\ndays = ["mon"]\npartitions = [{name}]\n',
    "kinds": '[[protected]]\nnodes = ["n1"]\nkinds = [{name}]\nwhy = "x"\n',
    "services": "services = [{name}]\n",
}
JOB = Job("98_15", "llm", "root", JobState.FAILED, "gpu", ("n1",), None, None, START, START, START, 1, None)


def with_names(site: Path, key: str, name: str) -> None:
    text = TABLES[key].format(name=json.dumps(name))
    write(site, f'extends = "shipped"\n{text}[end]\n')


def spellings(sort: str) -> list[Any]:
    cases = []
    for case in CASES[sort]:
        for word in ("holds", "not_for"):
            cases += [
                pytest.param(case["pattern"], name, word == "holds", id=ascii(f"{case['pattern']} {word} {name}"))
                for name in case[word]
            ]
    return cases


@pytest.mark.parametrize(("pattern", "name", "holds"), spellings("job"))
def test_a_job_is_what_slurm_means_by_its_id(pattern: str, name: str, holds: bool) -> None:
    assert covers_job((pattern,), name) is holds


@pytest.mark.parametrize(("pattern", "name", "holds"), spellings("account"))
def test_an_account_is_its_name_and_its_number(pattern: str, name: str, holds: bool) -> None:
    assert covers_account((pattern,), name) is holds


@pytest.mark.parametrize(("pattern", "name", "holds"), spellings("place"))
def test_a_set_of_places_is_expanded(pattern: str, name: str, holds: bool) -> None:
    assert covers_place((pattern,), name) is holds


@pytest.mark.parametrize(
    ("key", "pattern"),
    [
        (key, case["pattern"])
        for sort, keys in (("job", ("jobs",)), ("account", ("users",)), ("place", ("nodes", "partitions")))
        for case in CASES[sort]
        for key in keys
    ],
)
def test_what_holds_for_something_is_accepted(key: str, pattern: str, tmp_path: Path) -> None:
    with_names(tmp_path, key, pattern)
    load_policy(tmp_path)


@pytest.mark.parametrize(("key", "name"), [(key, name) for key, names in CASES["refused"].items() for name in names], ids=ascii)
def test_what_can_name_nothing_is_refused_with_its_place(key: str, name: str, tmp_path: Path) -> None:
    with_names(tmp_path, key, name)
    with pytest.raises(ContentError, match=r"policy\.toml"):
        load_policy(tmp_path)


def decided(world: World, site: Path, job: Job) -> tuple[Verdict, str]:
    world.cluster.job = lambda job_id: job  # type: ignore[method-assign]
    reach = reach_of({"job": job.id}, world.cluster)
    request = Request(Risk.DISRUPT, "resubmit", "cli:root", reach.targets, "cli:root")
    decision = decide(request, load_policy(site), Situation(START, reach.fleet))
    return decision.verdict, decision.rule


OWN = pwd.getpwuid(0).pw_name
UNKNOWN_UID = next(uid for uid in range(50_000, 60_000) if both_names(str(uid)) == f"({uid})")


@pytest.mark.parametrize(
    ("key", "name", "job", "holds"),
    [
        ("jobs", "98_[10-30]", {}, True),
        ("jobs", "98_[16-30]", {}, False),
        ("jobs", "98_16", {}, False),
        ("jobs", "98", {}, True),
        ("jobs", "98_15", {"id": "98_[10-30%4]"}, True),
        ("jobs", "131", {"raw_id": "131"}, True),
        ("jobs", "98_16", {"raw_id": "98"}, False),
        ("jobs", "98+1", {"id": "98+0", "raw_id": "98"}, True),
        ("jobs", "99", {"id": "98+1", "raw_id": "99"}, True),
        ("users", "0", {}, True),
        ("users", "1", {}, False),
        ("users", OWN, {"user": "0"}, True),
        ("users", OWN, {"user": "uid 0"}, True),
        ("users", OWN.upper(), {}, True),
        ("users", f"{OWN}@hpc.example", {}, True),
        ("users", f"{OWN}(0)", {"user": "0"}, True),
        ("users", str(UNKNOWN_UID), {"user": str(UNKNOWN_UID)}, True),
        ("users", str(UNKNOWN_UID), {"user": "known-to-the-cluster-only"}, True),
        ("users", "known-to-the-cluster-only", {"user": str(UNKNOWN_UID)}, True),
        ("users", "known-to-the-cluster-only", {}, False),
        ("users", OWN, {"user": ""}, True),
    ],
)
def test_a_protection_holds_for_each_way_to_name_its_job(
    key: str, name: str, job: dict[str, Any], holds: bool, tmp_path: Path, world: World
) -> None:
    with_names(tmp_path, key, name)
    verdict, rule = decided(world, tmp_path, replace(JOB, **job))
    assert (verdict is Verdict.DENY and rule.startswith("protected.")) is holds


def test_exact_names_that_match_nothing_now_are_told(tmp_path: Path) -> None:
    terms = '[[protected]]\njobs = ["98_[10-30]", "97", "llm", "lmm", "run*"]\nwhy = "x"\n'
    terms += f'[[protected]]\nusers = ["0", "{OWN}", "{UNKNOWN_UID}", "nobody-of-that-name", "shown-by-slurm", "x*"]\nwhy = "x"\n'
    terms += '[[protected]]\nnodes = ["n[1-2]", "n9"]\npartitions = ["tr[1-2]"]\nwhy = "x"\n'
    write(tmp_path, f'extends = "shipped"\n{terms}[end]\n')
    policy, fleet = load_policy(tmp_path), [Node("n1", NodeState.IDLE, "tr2")]
    jobs = [JOB, replace(JOB, id="12", user="shown-by-slurm")]
    lines = policy.unmatched(fleet, jobs)
    named = [line for name in ("97", "lmm", str(UNKNOWN_UID), "nobody-of-that-name", "n9") for line in lines if name in line]
    assert len(named) == len(lines) == 5, lines
    assert policy.unmatched([], None) == []


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("words", ["config check", "config policy", "doctor"])
def test_each_check_names_what_matches_nothing_of_the_cluster(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, site = tmp_path / "config.toml", tmp_path / "site"
    terms = '[[protected]]\njobs = ["98_[10-30]"]\nusers = ["nobody-of-that-name"]\nnodes = ["NODE01", "node01"]\nwhy = "x"\n'
    write(site, f'extends = "shipped"\n{terms}[end]\n')
    config.write_text(f'scheduler = "local"\nstate_folder = "{tmp_path / "state"}"\ncontent = "{site}"\n')
    config.chmod(0o600)
    assert main(["--config", str(config), "nodes"]) == 0, "the cluster is made"
    capsys.readouterr()
    main(["--config", str(config), *words.split()])
    output = " ".join(capsys.readouterr().out.split())
    for name in ("the id or the name 98_[10-30]", "has the account nobody-of-that-name", "is named NODE01"):
        assert name in output
    assert "named node01" not in output
