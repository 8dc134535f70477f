"""Which policy is in force is shown where people look; the kill switch is set and lifted by a command."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.cli.output import Exit
from assistant.daemon.pass_reports import PassRecorder
from assistant.daemon.pass_result import PassResult
from assistant.policy import PolicyInForce, load_policy
from assistant.ports import SystemClock
from assistant.store import Store
from tests.cli.conftest import Run

OWNER = "watch@login1:1.2"
SITE = """\
extends = "shipped"
mode = "propose"
replace = ["kill_switch"]
kill_switch = ["{home}/no-such-folder/a/stop", "{home}/state/stop"]
[kind.cordon]
hard = {{ per_hour = 3 }}
[end]
"""


@pytest.fixture
def policy_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = home / "site" / "knowledge" / "policy.toml"
    path.parent.mkdir(parents=True)
    (home / "state").mkdir()
    path.write_text(SITE.format(home=home))
    monkeypatch.setenv("NIGHTSHIFT_CONTENT", str(home / "site"))
    return path


@pytest.fixture
def leading(store_path: Path, policy_path: Path) -> Store:
    """A store that a watch of the site's policy leads."""
    store = Store(store_path, SystemClock())
    store.lead(OWNER, 60)
    in_force = PolicyInForce(policy_path.parent.parent, record=store)
    kept = PassRecorder(store, OWNER, frozenset, policy=in_force.look)
    kept.report(PassResult(datetime.now(UTC), 0.1, leads=True))
    return store


def test_config_check_tells_the_digest_and_what_the_site_changes(cli: Run, policy_path: Path) -> None:
    digest = load_policy(policy_path.parent.parent).digest
    said, facts = cli("config", "check"), cli("config", "check", "--json").objects[0]["policy"]
    assert said.code == Exit.DONE
    assert f"mode propose, digest {digest[:12]}" in said.out
    assert 'mode = "propose" (was "observe")' in said.out
    assert "kind.cordon.hard.per_hour = 3 (was 8)" in said.out
    assert (facts["digest"], facts["files"][0]) == (digest, str(policy_path))


def test_config_check_tells_what_to_add_to_a_policy_that_is_not_complete(cli: Run, policy_path: Path) -> None:
    policy_path.write_text(policy_path.read_text().replace("[end]\n", ""))
    said = cli("config", "check")
    assert said.code == Exit.USAGE
    assert "add the line [end]" in said.err


def test_status_shows_the_policy_of_the_watch_and_an_edit_since(cli: Run, leading: Store, policy_path: Path) -> None:
    held = load_policy(policy_path.parent.parent).digest
    (before,) = cli("status", "--json").objects
    assert (before["policy"], before["mode"], before["policy_now"]) == (held, "propose", held)
    policy_path.write_text('extends = "shipped"\n[end]\n')
    said, (after,) = cli("status"), cli("status", "--json").objects
    assert (after["policy"], after["mode"], after["mode_now"]) == (held, "propose", "observe")
    assert "the policy was edited since the last pass: mode observe after propose" in " ".join(said.out.split())


def test_status_and_doctor_tell_of_a_policy_that_is_not_in_force(cli: Run, leading: Store, policy_path: Path) -> None:
    policy_path.unlink()
    said, doctor = cli("status"), cli("doctor")
    assert said.code == 2
    assert "no policy is in force, every change is refused" in said.out
    assert "the site's policy is gone" in doctor.out
    assert cli("config", "policy").code == Exit.REFUSED
    assert cli("config", "policy", "--shipped", "--why", "a new beginning").code == Exit.DONE
    assert cli("status", "--json").objects[0]["policy_problem"] == ""
    (row,) = [row for row in leading.audit() if row.what == "policy.shipped"]
    assert row.why == "a new beginning"


def test_a_policy_that_is_there_is_not_given_up(cli: Run, leading: Store) -> None:
    said = cli("config", "policy", "--shipped")
    assert said.code == Exit.USAGE
    assert "move it away first" in said.err


def test_a_watch_writes_down_that_its_policy_changed(leading: Store, policy_path: Path) -> None:
    in_force = PolicyInForce(policy_path.parent.parent, record=leading)
    kept = PassRecorder(leading, OWNER, frozenset, policy=in_force.look)
    for text in ('extends = "shipped"\n[end]\n', "mode", SITE.format(home=policy_path.parents[2])):
        policy_path.write_text(text)
        kept.report(PassResult(datetime.now(UTC), 0.1, leads=True))
    rows = [(row.what, row.outcome) for row in leading.audit() if row.what in ("policy.changed", "watch.policy")]
    assert rows == [
        ("policy.changed", ""),
        ("watch.policy", "on"),
        ("policy.changed", ""),
        ("watch.policy", "off"),
        ("policy.changed", ""),
    ]


def test_stop_sets_a_kill_switch_and_lift_removes_it(cli: Run, leading: Store, home: Path) -> None:
    switch = home / "state" / "stop"
    said = cli("stop", "--why", "the storage is being moved")
    assert (said.code, switch.exists()) == (Exit.DONE, True)
    assert str(switch) in said.out
    assert "the storage is being moved" in switch.read_text()
    assert switch.stat().st_mode & 0o777 in (0o600, 0o644)
    assert cli("stop").code == Exit.DONE, "it is set already"
    assert "the storage is being moved" in cli("doctor").out
    assert "the kill switch is set" in cli("status").out
    assert cli("stop", "--lift", "--json").objects[0]["lifted"] == [str(switch)]
    assert not switch.exists()
    assert cli("stop", "--lift").code == Exit.DONE, "none is set"
    found = [(row.what, row.why) for row in leading.audit() if row.what.startswith("kill_switch.")]
    assert found == [("kill_switch.set", "the storage is being moved"), ("kill_switch.lifted", "lifted by hand")]


def test_stop_fails_where_the_leading_watch_looks_elsewhere(cli: Run, leading: Store, home: Path, policy_path: Path) -> None:
    policy_path.write_text(SITE.format(home=home / "of-another-account"))
    said = cli("stop")
    assert said.code == Exit.ERROR
    assert f"{home}/state/stop" in said.err


def test_stop_says_what_it_could_not_lift(cli: Run, policy_path: Path, home: Path) -> None:
    (home / "state" / "stop").mkdir()
    said = cli("stop", "--lift")
    assert said.code == Exit.ERROR
    assert "is set still" in said.err


@pytest.mark.parametrize("damage", [lambda path: path.chmod(0o666), lambda path: path.parent.chmod(0o777)], ids=["file", "folder"])
@pytest.mark.parametrize("sort", ["config", "playbook", "knowledge", "program"])
def test_what_others_may_write_is_refused(cli: Run, home: Path, monkeypatch: pytest.MonkeyPatch, sort: str, damage: object) -> None:
    places = {
        "config": home / "etc" / "config.toml",
        "playbook": home / "site" / "playbooks" / "own.toml",
        "knowledge": home / "site" / "knowledge" / "limits.toml",
        "program": home / "bin" / "kernel-log",
    }
    path = places[sort]
    path.parent.mkdir(parents=True)
    path.write_text("")
    config = places["config"]
    config.parent.mkdir(exist_ok=True)
    content = f'content = "{home}/site"\n' if (home / "site").exists() else ""
    program = f'[commands]\nkernel_log = ["{path}"]\n' if sort == "program" else ""
    config.write_text(content + program)
    assert callable(damage)
    damage(path)
    said = cli("--config", config, "doctor") if sort == "knowledge" else cli("--config", config, "config", "check")
    if sort == "knowledge":
        from assistant.content.devices import limits

        with pytest.raises(Exception, match="others may write it"):
            limits(home / "site")
        return
    assert said.code == Exit.USAGE
    assert "others may write it" in said.err
