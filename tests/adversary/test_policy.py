"""A policy that is cut off, broken, gone or edited while Nightshift runs never lets through what the whole one would not.

The policies are in policies/; what is done to their files is the table BREAKS.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assistant.errors import ContentError, Denied
from assistant.gate import Gate, Park
from assistant.gate.stops import lift_kill_switch, set_kill_switch
from assistant.policy import Policy, PolicyInForce, Request, Situation, decide, load_policy, load_policy_files
from assistant.policy.loading import shipped_policy_file
from assistant.records import CallStatus, NodeState, Risk, Verdict
from assistant.rendering import RenderedChange
from assistant.tooling import Context
from tests.adversary.conftest import ACT, write
from tests.scenarios.scene import Scene
from tests.unit.gate_world import START, World, cordon, find

POLICIES = Path(__file__).parent / "policies"
OBSERVE = 'extends = "shipped"\n[end]\n'


# every prefix


@pytest.mark.parametrize("name", ["act", "propose", "overlay"])
def test_no_prefix_of_a_policy_is_obeyed_as_another_policy(name: str, tmp_path: Path) -> None:
    whole = (POLICIES / f"{name}.toml").read_bytes()
    path = write(tmp_path, whole)
    digest = load_policy(tmp_path).digest
    accepted = set()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            accepted.add(load_policy(tmp_path).digest)
        except ContentError:
            continue
    assert accepted <= {digest}


def test_no_prefix_of_what_an_overlay_extends_is_obeyed(tmp_path: Path) -> None:
    whole = (POLICIES / "propose.toml").read_bytes()
    base = tmp_path / "base.toml"
    base.write_bytes(whole)
    write(tmp_path, 'extends = "../base.toml"\nmode = "propose"\n[end]\n')
    digest = load_policy(tmp_path).digest
    for length in range(len(whole)):
        base.write_bytes(whole[:length])
        try:
            assert load_policy(tmp_path).digest == digest
        except ContentError:
            continue


@pytest.mark.parametrize(
    "text",
    [
        'mode = "observe"\n# \u2028[end]',
        'mode = "observe"\n# \x85[end]',
        'mode = "observe"\nend = {}\n',
        'mode = "observe"\n[end]\nlaxer = true\n',
        'mode = "observe"\n[end]\n[kind.cordon]\nmode = "act"\n',
        'mode = "observe"\n[kind.cordon]\n[end]\n[kind.cancel]\n',
        'mode = "observe"\n[[end]]\n',
        'mode = "observe"\n["end"]\n',
        'mode = "observe"\n#[end]\n',
        "mode = \"observe\"\nx = '''\n[end]\n",
        "",
        "\n\n",
        "[end",
    ],
    ids=repr,
)
def test_what_only_looks_like_an_end_is_none(text: str, tmp_path: Path) -> None:
    write(tmp_path, text)
    with pytest.raises(ContentError):
        load_policy(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('mode = "act"\nhard = { per_hour = 1, per_day = 1 }\n', "needs a kill switch"),
        ('mode = "act"\nkill_switch = ["/s"]\n', "needs hard limits over all"),
        ('mode = "act"\nkill_switch = ["/s"]\nhard = { per_hour = 1 }\n', "needs hard limits over all"),
        ('kill_switch = ["/s"]\n[kind.cordon]\nmode = "act"\nhard = { per_day = 3 }\n', "cordon is in mode"),
        (
            'kill_switch = ["/s"]\nhard = { per_hour = 1, per_day = 1 }\n[kind.cordon]\nmode = "act"\nin_totals = false\n',
            "beside the totals",
        ),
        ('extends = "shipped"\nmode = "act"\nreplace = ["kill_switch"]\n', "needs a kill switch"),
        ('extends = "shipped"\nmode = "act"\nreplace = ["hard.per_day"]\n', "needs hard limits over all"),
        ('extends = "shipped"\nreplace = ["hards"]\n', "did you mean 'hard'"),
        ('mode = "act"\nkill_switch = ["stop"]\nhard = { per_hour = 1, per_day = 1 }\n', "absolute path"),
        ("cooldown_min = nan\n", "cooldown_min"),
        ("cooldown_min = -5\n", "cooldown_min"),
        ("min_healthy_share = nan\n", "min_healthy_share"),
        (f"cooldown_min = {'9' * 5000}\n", "cannot be read as TOML"),
        (f"x = {'[' * 50_000}\n", "policy.toml"),
        ('extends = "policy.toml"\n', "leads back"),
        ('extends = "../gone.toml"\n', "gone.toml: does not exist"),
    ],
)
def test_a_policy_without_brakes_is_refused_when_it_is_read(text: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, f"{text}[end]\n")
    with pytest.raises(ContentError, match=message):
        load_policy(tmp_path)


# every way to break a file


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _link(target: str) -> Callable[[Path], None]:
    def replace_by_link(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return replace_by_link


def _unreadable(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    path.chmod(0)


def _another_owner(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(path, 54321, -1)


def _parent_of_another(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives folders away")
    os.chown(path.parent, 54321, -1)


def _grown(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 34)


BREAKS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "blanks": lambda path: path.write_bytes(b"\n" * 300),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "without its last line": lambda path: path.write_text(path.read_text().replace("[end]\n", "")),
    "zeros": lambda path: path.write_bytes(b"\0" * 4096),
    "no UTF-8": lambda path: path.write_bytes(b"\xff" + path.read_bytes()),
    "a folder": _folder,
    "a pipe": _fifo,
    "a dangling link": _link("/nowhere/policy.toml"),
    "a link to itself": _link("policy.toml"),
    "a link to a device": _link("/dev/zero"),
    "unreadable": _unreadable,
    "writable by the group": lambda path: path.chmod(0o664),
    "writable by all": lambda path: path.chmod(0o646),
    "in a folder that all may write": lambda path: path.parent.chmod(0o777),
    "in a folder of a folder that all may write": lambda path: path.parent.parent.chmod(0o777),
    "of another owner": _another_owner,
    "in another owner's folder": _parent_of_another,
    "16 GiB, sparse": _grown,
    "its folder is gone": lambda path: path.parent.rename(path.parent.with_name("gone")),
    "the site's folder is gone": lambda path: path.parent.parent.rename(path.parent.parent.with_name("gone")),
    "the site's folder is empty": lambda path: shutil.rmtree(path.parent),
    "it extends nothing": lambda path: path.write_text('extends = "/nowhere.toml"\nmode = "act"\n[end]\n'),
    "acts without brakes": lambda path: path.write_text('mode = "act"\n[end]\n'),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_policy_lets_no_change_through_until_it_is_whole(name: str, world: World, site: Path) -> None:
    path = site / "knowledge" / "policy.toml"
    gate = world.gate(PolicyInForce(site, record=world.store))
    with pytest.raises(Denied, match=r"protected\.2"):
        cordon_of(gate, "n2")
    BREAKS[name](path)
    for running in (gate, world.gate(PolicyInForce(site, record=world.store))):
        for approved_by in (None, "ada"):
            for node in ("n1", "n2"):
                with pytest.raises(Denied, match="refused by policy: no policy is in force"):
                    cordon_of(running, node, approved_by=approved_by)
        assert not running.call("look", {}, why="", by="cli:ada").value["cordoned"], "reading goes on"
    assert world.cluster.changes == []
    for damaged in (path, path.parent, path.parent.parent):
        if damaged.is_symlink() or (damaged.exists() and not damaged.is_dir()):
            damaged.unlink()
        elif damaged == path and damaged.is_dir():
            damaged.rmdir()
        elif damaged.is_dir():
            damaged.chmod(0o755)
            os.chown(damaged, os.geteuid(), -1)
    write(site, ACT.format(stop=site.parent / "stop"))
    path.chmod(0o644)
    assert cordon_of(gate, "n1").ok
    with pytest.raises(Denied, match=r"protected\.2"):
        cordon_of(gate, "n2", approved_by="ada")


def cordon_of(gate: Any, node: str, approved_by: str | None = None) -> Any:
    return gate.call("cordon_node", {"node": node, "reason": "ecc"}, why="", by="cli:ada", approved_by=approved_by)


def test_a_setting_that_no_longer_names_the_sites_folder_is_no_way_to_the_shipped_policy(world: World, site: Path) -> None:
    assert not PolicyInForce(site, record=world.store).look().problem
    assert "names no folder now" in PolicyInForce(None, record=world.store).look().problem
    assert world.store.give_up_site_policy(by="cli:ada") == str(site / "knowledge" / "policy.toml")
    given_up = PolicyInForce(None, record=world.store).look()
    assert (given_up.problem, given_up.mode) == ("", "observe")


def test_a_site_that_never_had_a_policy_has_the_shipped_one(world: World, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert PolicyInForce(tmp_path / "new", record=world.store).look().files == (shipped_policy_file(),)


# edits while something runs


class SiteScene(Scene):
    """The scene with a policy in the files of a site."""

    def __init__(self, folder: Path, text: str) -> None:
        self.site = folder / "site"
        write(self.site, text)
        super().__init__(folder)

    def policy(self) -> PolicyInForce:
        return PolicyInForce(self.site, record=self.store())


def acting(folder: Path, more: str = "") -> str:
    stop = f'replace = ["kill_switch"]\nkill_switch = ["{folder / "stop"}"]\n'
    return f'extends = "shipped"\nmode = "act"\nmin_healthy_share = 0.5\n{stop}{more}[end]\n'


WINDOW = '[[window]]\nname = "upgrade"\nstart = 2026-01-05T00:00:00Z\nend = 2026-01-06T00:00:00Z\n'
PROTECTED = '[[protected]]\njobs = ["llm"]\nnodes = ["*"]\nwhy = "the customer asks for it"\n'
EDITS: dict[str, tuple[Callable[[Scene, Path], object], str]] = {
    "observe": (lambda scene, site: write(site, OBSERVE), "mode.observe"),
    "propose": (lambda scene, site: write(site, acting(scene.folder).replace('"act"', '"propose"')), "mode.propose"),
    "a window": (lambda scene, site: write(site, acting(scene.folder, WINDOW)), "window.upgrade"),
    "a protection": (lambda scene, site: write(site, acting(scene.folder, PROTECTED)), "protected."),
    "a cap": (lambda scene, site: write(site, acting(scene.folder, "[hard]\nper_hour = 0\n")), "hard.per_hour"),
    "another kill switch": (
        lambda scene, site: write(site, acting(scene.folder).replace(str(scene.folder / "stop"), "/proc/self/status")),
        "kill_switch",
    ),
    "the kill switch": (lambda scene, site: (scene.folder / "stop").touch(), "kill_switch"),
    "cut off": (lambda scene, site: write(site, acting(scene.folder)[:40]), "policy"),
    "gone": (lambda scene, site: shutil.rmtree(site), "policy"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_obeyed_by_a_running_watch_at_its_next_change(name: str, tmp_path: Path) -> None:
    scene = SiteScene(tmp_path, acting(tmp_path))
    scene.cluster.submit(scene.spec)
    for _ in range(3):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    assert not scene.engine.store.incidents(), "the job has not failed yet"
    EDITS[name][0](scene, scene.site)
    scene.watch(600)
    assert scene.engine.store.incidents()
    assert scene.cluster.changes == ["submit 1"]


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_between_decision_and_command_is_obeyed(name: str, tmp_path: Path) -> None:
    scene = SiteScene(tmp_path, acting(tmp_path))
    edited: list[int] = []

    def edit_late() -> None:
        begun = [call for call in scene.engine.store.calls(status=CallStatus.INTENT) if call.tool == "resubmit_job"]
        if begun and not edited:
            edited.append(begun[0].id)
            EDITS[name][0](scene, scene.site)

    def with_hook(question: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*arguments: Any) -> Any:
            edit_late()
            return question(*arguments)

        return answer

    for question in ("job", "jobs", "nodes"):
        setattr(scene.cluster, question, with_hook(getattr(scene.cluster, question)))
    scene.cluster.submit(scene.spec)
    scene.watch(600)
    assert edited
    assert [change for change in scene.cluster.changes if change.startswith("submit")] == ["submit 1"]
    last = scene.engine.store.decisions(edited[0])[-1]
    assert last.verdict is not Verdict.ALLOW
    assert last.rule.startswith(EDITS[name][1])


def test_a_window_that_opens_between_decision_and_command_is_seen(world: World, site: Path) -> None:
    opens = START + timedelta(minutes=5)
    window = f'[[window]]\nname = "w"\nstart = {opens.isoformat()}\nend = {(opens + timedelta(hours=1)).isoformat()}\n[end]\n'
    write(site, ACT.format(stop=site.parent / "stop").replace("[end]\n", window))
    context = world.context

    def with_a_slow_tool(incident: int | None, tag: str) -> Any:
        if world.store.calls(status=CallStatus.INTENT):
            world.clock.sleep(301)
        return context(incident, tag)

    gate = Gate(world.store, with_a_slow_tool, PolicyInForce(site), Park(world.store, expires_after_s=60), find=find)
    with pytest.raises(Denied, match=r"no longer allowed, window\.w"):
        cordon_of(gate, "n1", approved_by="ada")
    assert world.cluster.changes == []
    assert world.statuses[-1] == "denied"


def test_a_call_of_several_commands_stops_at_the_first_that_is_no_longer_allowed(world: World, site: Path) -> None:
    def run(context: Context, node: str, reason: str) -> None:
        context.scheduler.cordon("n1", reason)
        write(site, OBSERVE)
        context.scheduler.cordon("n3", reason)

    def show(context: Context, node: str, reason: str) -> RenderedChange:
        lines = context.scheduler.command_lines("cordon", "n1", reason) + context.scheduler.command_lines("cordon", "n3", reason)
        return RenderedChange(lines)

    tool = replace(find("cordon_node"), run=run, show=show)
    gate = Gate(world.store, world.context, PolicyInForce(site), Park(world.store, expires_after_s=60), find=lambda _: tool)
    outcome = gate.call("cordon_node", {"node": "n1", "reason": "ecc"}, why="", by="playbook:ecc_error")
    assert not outcome.ok
    assert "no longer allowed, mode.observe" in outcome.error
    assert world.cluster.changes == ["cordon n1"]


def test_the_digest_of_the_policy_is_part_of_every_decision(world: World, site: Path) -> None:
    gate = world.gate(PolicyInForce(site, record=world.store))
    outcome = cordon_of(gate, "n1")
    (decision,) = world.store.decisions(outcome.call)
    assert decision.policy == load_policy(site).digest
    (row,) = [row for row in world.store.audit() if row.what == "decision"]
    assert row.detail["policy"] == decision.policy


# the kill switch and approvals


def test_a_kill_switch_eats_no_approval(tmp_path: Path) -> None:
    scene = SiteScene(tmp_path, acting(tmp_path).replace('"act"', '"propose"'))
    scene.cluster.submit(scene.spec)
    for _ in range(60):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
        if scene.engine.store.approvals():
            break
    (asked,) = scene.engine.store.approvals()
    scene.engine.store.answer(asked.id, Verdict.ALLOW, "cli:ada")
    store, policy = scene.engine.store, scene.engine.gate.policy
    set_kill_switch(store, policy, by="cli:ada", why="look first")
    rows = store.audit_mark()
    for _ in range(20):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    assert scene.cluster.changes == ["submit 1"]
    assert store.call(asked.call).status is CallStatus.PENDING
    refusals = [row for row in store.audit(after=rows) if row.what == "decision"]
    assert [row.rule for row in refusals] == ["kill_switch"], "a refusal that goes on is written once"
    assert lift_kill_switch(store, policy, by="cli:ada").lifted == (tmp_path / "stop",)
    scene.watch(60)
    assert "cordon node02" in scene.cluster.changes
    assert [row.what for row in store.audit() if row.what.startswith("kill_switch.")] == ["kill_switch.set", "kill_switch.lifted"]


def test_a_broken_policy_eats_no_approval(world: World, site: Path) -> None:
    write(site, ACT.format(stop=site.parent / "stop").replace('"act"', '"propose"'))
    gate = world.gate(PolicyInForce(site, record=world.store))
    with pytest.raises(Exception, match="waits for approval 1"):
        cordon(gate, incident=None, step=None)
    world.store.answer(1, Verdict.ALLOW, "cli:ada")
    (call,) = world.store.allowed()
    whole = (site / "knowledge" / "policy.toml").read_bytes()
    write(site, whole[:-3])
    for _ in range(3):
        with pytest.raises(Denied):
            gate.go_on(call.id)
    assert [one.id for one in world.store.allowed()] == [call.id]
    write(site, whole)
    assert gate.go_on(call.id).ok
    assert next(node for node in world.cluster.nodes() if node.name == "n1").state is NodeState.DRAINED


# any edit


TERMS = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(['"observe"', '"propose"', '"act"']),
        "min_healthy_share": st.sampled_from(["0.0", "0.5", "1.0"]),
        "cooldown_min": st.sampled_from(["0", "60"]),
        "hard.per_hour": st.sampled_from(["0", "1", "5"]),
        "hard.per_day": st.sampled_from(["0", "5"]),
        "kind.cordon.mode": st.sampled_from(['"observe"', '"propose"', '"act"']),
        "kind.cordon.takes_nodes": st.sampled_from(["true", "false"]),
        "protected": st.sampled_from(['[{ nodes = ["n1"], why = "x" }]', '[{ nodes = ["n2"], why = "y" }]']),
        "window": st.just('[{ name = "w", days = ["mon", "tue"] }]'),
        "kill_switch": st.sampled_from(['["/nowhere/a"]', '["/proc/self/status"]']),
        "extends": st.just('"shipped"'),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(TERMS, st.booleans(), st.booleans()), min_size=2, max_size=4))
def test_no_edit_needs_a_restart(edits: list[tuple[dict[str, str], bool, bool]], tmp_path: Path) -> None:
    """What runs decides as what is started after the edit would; also where size and time of the file stay as they were."""
    path = write(tmp_path / "edited", OBSERVE)
    running = PolicyInForce(tmp_path / "edited")
    for terms, whole, same_look in edits:
        text = "".join(f"{key} = {value}\n" for key, value in terms.items()) + ("[end]\n" if whole else "")
        before = path.stat()
        if same_look:
            text = text + "#" * max(0, before.st_size - len(text))
        path.write_text(text)
        if same_look:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        now, fresh = running.look(), PolicyInForce(tmp_path / "edited").look()
        assert (now.digest, now.problem) == (fresh.digest, fresh.problem)
        assert whole or now.problem
        request = Request(Risk.CHANGE, "cordon", "playbook:x", approved_by="ada")
        verdict = decide(request, now.policy, Situation(START, policy_problem=now.problem)).verdict
        assert verdict is Verdict.DENY or not now.problem


def test_the_digest_changes_with_every_term() -> None:
    whole = load_policy_files(POLICIES / "act.toml").policy
    lacking = [replace(whole, **{term.name: getattr(Policy(), term.name)}) for term in fields(Policy)]
    assert len({whole.digest, *(policy.digest for policy in lacking)}) == 1 + len(lacking)
