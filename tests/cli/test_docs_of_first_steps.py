"""docs/prepare.md and docs/from_observe_to_act.md say what the code knows, and their commands and policies work."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from assistant.cli.doctor import EXAMPLE_POLICY
from assistant.config import loading
from assistant.recover.directives import FORMATS, Directives, read_directives
from assistant.recover.job_reading import read_script
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
PREPARE = (ROOT / "docs" / "prepare.md").read_text(encoding="utf-8")
STEPS = (ROOT / "docs" / "from_observe_to_act.md").read_text(encoding="utf-8")
NOT_OF_JOBS = {
    "NIGHTSHIFT_CONFIG": "settings",
    "NIGHTSHIFT_STORE": "settings",
    "NIGHTSHIFT_DEVCLUSTER": "live tests",
    "NIGHTSHIFT_ENVIRONMENT": "a mark in scripts, not a variable",
    "NIGHTSHIFT_COMPLETE": "completion of the shell",
    "NIGHTSHIFT_ADDRESS": "the trainer of the demo",
    "NIGHTSHIFT_RENDEZVOUS": "the trainer of the demo",
    "NIGHTSHIFT_NODE_DIR": "the trainer of the demo",
    "NIGHTSHIFT_FAULT_DIR": "the trainer of the demo",
    "NIGHTSHIFT_SCRATCH": "the trainer of the demo",
}
"""Variables in the code that are no business of a job's script, and whose they are."""


def variables(text: str) -> set[str]:
    return {name for name in re.findall(r"\bNIGHTSHIFT_[A-Z][A-Z_]*[A-Z]\b(?!_)", text) if name != "NIGHTSHIFT_SKIP"}


def test_every_key_of_a_directive_is_on_the_page_and_no_other() -> None:
    keys = {field.name for field in dataclasses.fields(Directives)} - {"problems"}
    table = PREPARE.partition("## What a script can say")[2].partition("## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == keys
    assert all(f"`{form}`" in table for form in FORMATS)
    for key in keys:
        assert not any("unknown key" in problem for problem in read_directives(f"#NIGHTSHIFT {key}=x").problems)


def test_every_variable_of_a_job_is_on_the_page_and_no_other() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "assistant").rglob("*.py")]
    assert variables("\n".join(sources)) - set(NOT_OF_JOBS) == variables(PREPARE)


def test_no_variable_of_a_job_is_taken_for_a_setting() -> None:
    assert {name.removeprefix("NIGHTSHIFT_") for name in variables(PREPARE)} <= loading._NOT_SETTINGS


def test_the_example_of_the_page_is_what_the_command_says(cli: Run, tmp_path: Path) -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=4 --ntasks-per-node=8\nsrun python -u pretrain_gpt.py --save /ckpt/gpt --num-layers 24\n"
    reading = read_script(script, name="train.sbatch")
    shown = PREPARE.partition("$ nightshift job check train.sbatch\n")[2].partition("```")[0]
    for said in (reading.launch, reading.resume.sentence, reading.shape, reading.gaps[0].text, reading.gaps[0].line):
        assert said in shown
    file = tmp_path / "train.sbatch"
    file.write_text(script, encoding="utf-8")
    assert cli("job", "check", file).code == 1


@pytest.mark.parametrize("policy", [*re.findall(r"```toml\n(.*?)```", STEPS, re.DOTALL), EXAMPLE_POLICY])
def test_each_policy_of_the_steps_is_valid_and_none_is_what_ships(cli: Run, home: Path, policy: str) -> None:
    file = home / "site" / "knowledge" / "policy.toml"
    file.parent.mkdir(parents=True)
    file.write_text(policy, encoding="utf-8")
    settings = home / "config.toml"
    settings.write_text(f'content = "{home / "site"}"\nstate_folder = "{home / "state"}"\n', encoding="utf-8")
    said = cli("--config", settings, "config", "check")
    assert said.code == 0, said.out + said.err
    mode = re.search(r'^mode = "(\w+)"', policy, re.MULTILINE)
    assert mode is not None
    assert mode[1] in cli("--config", settings, "config", "policy").out


@pytest.mark.slow
def test_each_command_of_the_steps_runs(cli: Run, home: Path) -> None:
    commands = re.findall(r"^\$ nightshift (.*)$", STEPS, re.MULTILINE)
    assert len(commands) > 9
    settings = home / "config.toml"
    settings.write_text(f'state_folder = "{home / "state"}"\n', encoding="utf-8")
    for line in commands:
        said = cli("--config", settings, *shlex.split(line))
        # status is critical before a watch has ever made a pass; doctor may miss parts of a machine without a cluster
        assert said.code in ((0, 1, 2) if line in ("status", "doctor") else (0,)), f"{line}: {said.out}{said.err}"


def test_the_doctor_tries_a_running_job_and_shows_a_first_policy(cli: Run) -> None:
    found = {one["name"]: one for one in cli("doctor", "--json").objects}
    assert 'extends = "shipped"' in found["example"]["text"]
    assert "no job runs now" in found["jobs"]["text"]
