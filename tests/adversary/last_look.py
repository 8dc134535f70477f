"""Changes that are no command of the scheduler behind a policy in files, and what may come between decision and change."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.gate import Gate, Park
from assistant.policy import PolicyInForce
from assistant.ports import Reply
from assistant.records import CallStatus, Outcome, Risk
from assistant.recover.resume.config import ConfigCopy
from assistant.rendering import RenderedChange
from assistant.store import Store
from assistant.store.standing_decisions import open_breaker
from assistant.tooling import Context, Tool, find_tool, tool
from assistant.tools.restarts import copy_lines, make_copy
from tests.adversary.conftest import write
from tests.adversary.frozen_scene import (
    CHANGES,
    ON_FILES,
    START,
    Scene,
    file_arguments_of,
    files_of,
    scene_of,
)

OBSERVE = 'extends = "shipped"\n[end]\n'
SLOW_S = 300
"""How long a tool works between the decision and its change."""


def acting(scene: Scene, more: str = "") -> str:
    stop = f'replace = ["kill_switch"]\nkill_switch = ["{scene.folder / "stop"}"]\n'
    return f'extends = "shipped"\nmode = "act"\nmin_healthy_share = 0\ncooldown_min = 0\n{stop}{more}[end]\n'


@tool(risk=Risk.CHANGE, kind="resubmit")
def copy_config(context: Context, job: str) -> str:
    """Write the copied configuration of a restart, and no more.

    Args:
        job: Its id.
    """
    make_copy(context, context.scheduler.job(job), _copy(context, job))
    return job


@copy_config.preview
def copying(context: Context, job: str) -> RenderedChange:
    return RenderedChange(copy_lines(_copy(context, job)))


def _copy(context: Context, job: str) -> ConfigCopy:
    folder = context.scheduler.job(job).work_dir or Path()
    return ConfigCopy(folder / "train.yaml", "load", "/c/40", folder / "ckpt/train.nightshift.yaml", "load: /c/40\n", 0o644)


def found(name: str) -> Tool:
    return copy_config if name == copy_config.name else find_tool(name)


@dataclass
class Bench:
    """A scene behind a policy in files, and what reached nodes."""

    scene: Scene
    tool: str
    arguments: dict[str, Any]
    context: Callable[[int | None, str], Context]
    on_nodes: list[str] = field(default_factory=list)

    @property
    def site(self) -> Path:
        return self.scene.folder / "site"

    def gate(self) -> Gate:
        policy = PolicyInForce(self.site)
        return Gate(self.scene.store, self.context, policy, Park(self.scene.store, expires_after_s=1), find=found)

    def call(self, **more: Any) -> Outcome:
        return self.gate().call(self.tool, self.arguments, why="test", by="playbook:x", **more)

    def edited_late(self, edit: Callable[[], object]) -> None:
        """Let something happen between the decision and what the tool does, which takes its time."""
        plain = self.context
        edits: list[object] = []

        def context(incident: int | None, tag: str) -> Context:
            if not edits and self.scene.store.calls(status=CallStatus.INTENT):
                edits.append(edit())
                self.scene.clock.sleep(SLOW_S)
            return plain(incident, tag)

        self.context = context

    def changed(self) -> tuple[dict[str, str], list[str], list[str]]:
        return files_of(self.scene), self.scene.ran(), list(self.on_nodes)


def bench_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    scene = scene_of("simulated", folder)
    if name in ON_FILES:
        tool_name, arguments = file_arguments_of(scene, name)
    elif name == "copy":
        tool_name, arguments = copy_config.name, {"job": scene.jobs["failed"]}
    else:
        tool_name, own_arguments = CHANGES[name]
        arguments = {key: text.format(**scene.jobs) if isinstance(text, str) else text for key, text in own_arguments.items()}
    if name == "trial":  # a script of which nobody can tell how it goes on
        arguments["exclude"] = ["node01", "node02", "node03"]
        job = scene.transport._jobs[scene.jobs["failed"]]
        assert job.spec is not None
        script = f"#!/bin/sh\n#NIGHTSHIFT checkpoints={scene.checkpoints}\nsrun python train.py\n"
        scene.transport._jobs[job.id] = replace(job, spec=replace(job.spec, script=script, environment={}))
    bench = Bench(scene, tool_name, dict(arguments), scene.context)
    write(bench.site, acting(scene))
    real = scene.transport.run

    def run(nodes: Any, command: Any, **named: Any) -> Mapping[str, Reply]:
        bench.on_nodes += nodes
        return real(nodes, command, **named)

    monkeypatch.setattr(scene.transport, "run", run)
    return bench


def protection(names: str) -> Callable[[Bench], object]:
    return lambda bench: write(bench.site, acting(bench.scene, f'[[protected]]\n{names}\nwhy = "asked for"\n'))


def window(opens_after: timedelta) -> Callable[[Bench], object]:
    times = f"start = {(START + opens_after).isoformat()}\nend = {(START + timedelta(days=9)).isoformat()}\n"
    return lambda bench: write(bench.site, acting(bench.scene, f'[[window]]\nname = "upgrade"\n{times}'))


def another_leads(bench: Bench) -> None:
    led = bench.scene.store.lead("watch@login1:1.1", 30)
    assert led is not None
    bench.scene.store.fence_off(led)
    bench.scene.clock.sleep(60)
    with Store(bench.scene.folder / "s.db", bench.scene.clock) as other:
        assert other.lead("watch@login2:2.2", 30) is not None


EDITS: dict[str, tuple[Callable[[Bench], object], str]] = {
    "the kill switch": (lambda bench: (bench.scene.folder / "stop").touch(), "kill_switch"),
    "another kill switch": (
        lambda bench: write(bench.site, acting(bench.scene).replace(str(bench.scene.folder / "stop"), "/proc/self/status")),
        "kill_switch",
    ),
    "observe": (lambda bench: write(bench.site, OBSERVE), "mode.observe"),
    "propose": (lambda bench: write(bench.site, acting(bench.scene).replace('"act"', '"propose"')), "mode.propose"),
    "a window": (window(timedelta(0)), "window.upgrade"),
    "a window that opens meanwhile": (window(timedelta(seconds=SLOW_S)), "window.upgrade"),
    "a protection": (protection('jobs = ["llm"]\nnodes = ["*"]'), "protected."),
    "a protected user": (protection('users = ["root"]\nnodes = ["*"]'), "protected."),
    "a cap": (
        lambda bench: write(bench.site, acting(bench.scene, f"[kind.{found(bench.tool).kind}]\nhard = {{ per_hour = 0 }}\n")),
        "kind.",
    ),
    "the breaker": (lambda bench: open_breaker(bench.scene.store, why="three failed", by="test"), "breaker"),
    "cut off": (lambda bench: write(bench.site, acting(bench.scene)[:40]), "policy"),
    "gone": (lambda bench: shutil.rmtree(bench.site), "policy"),
    "another leads": (another_leads, ""),
}


def after(bench: Bench, module: Any, function: str, monkeypatch: pytest.MonkeyPatch, edit: str, *, times: int = 1) -> None:
    """Let an edit come right behind a step that a change makes several of."""
    real, steps = getattr(module, function), []

    def step(*positional: Any, **named: Any) -> Any:
        result = real(*positional, **named)
        steps.append(function)
        if len(steps) == times:
            EDITS[edit][0](bench)
            bench.scene.clock.sleep(SLOW_S)
        return result

    monkeypatch.setattr(module, function, step)


def lifted(bench: Bench) -> None:
    (bench.scene.folder / "stop").unlink(missing_ok=True)
    write(bench.site, acting(bench.scene))


def of_three_ranks(bench: Bench) -> None:
    folder = bench.scene.checkpoints
    shutil.rmtree(folder)
    folder.mkdir()
    for rank in range(3):
        for step in (20, 40):
            (folder / f"ep0-ba{step}-rank{rank}.pt").write_bytes(b"\x80" + bytes(9000))
        (folder / f"latest-rank{rank}.pt").symlink_to(f"ep0-ba40-rank{rank}.pt")


def two_saves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = bench_of("set aside", folder, monkeypatch)
    bench.arguments["paths"] = [str(bench.scene.checkpoints / f"iter_00000{step}") for step in (40, 20)]
    return bench


MIDDLE = ("the kill switch", "observe", "a window", "a protection", "a cap")
