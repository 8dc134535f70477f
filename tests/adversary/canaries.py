"""Secrets planted at every way in, redaction that can be switched off, and what is left of the secrets in a text."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

from assistant.policy import Mode
from assistant.records import (
    Call,
    CallStatus,
    Decision,
    Event,
    EventKind,
    IncidentState,
    JobSpec,
    LearnedRule,
    RuleKind,
    RuleState,
    Verdict,
)
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Count, Memory
from tests.scenarios.scene import ECC, XID, Scene

WAYS = (
    *("name", "user", "partition", "comment", "script", "environment", "argument", "directive", "options"),
    *("url", "json", "bearer", "kernel", "controller", "reason", "tracker", "evidence", "approval", "audit"),
    *("rule", "memory", "figure", "question", "typed", "model", "tool", "sink", "exception", "evaluation", "metrics"),
)
"""Places that somebody else than the site's administrator writes to."""


def canary(way: str) -> str:
    """Return the secret of a way in; it looks like none by itself, so that what surrounds it must be read."""
    return f"zq{WAYS.index(way):02}canaryXw{WAYS.index(way):02}"


def planted_text(way: str) -> str:
    """Return the secret of a way in with its name, and a word before it that is no secret."""
    return f"near-{way} password={canary(way)}"


def ways_in(text: str) -> set[str]:
    """Return the ways in whose secrets a text holds."""
    return {way for way in WAYS if canary(way) in text}


def ways_near(text: str) -> set[str]:
    """Return the ways in of which a text holds what stands around the secret."""
    return {way for way in WAYS if f"near-{way}" in text}


@contextmanager
def redaction_off() -> Iterator[None]:
    """Let every text through as it is, in this process, for as long as this block runs."""
    with (
        patch("assistant.redact.text.secret_spans", lambda _text: []),
        patch("assistant.redact.text._is_secret", lambda *_: False),
        patch("assistant.redact.text.names_option", lambda *_: False),
        patch("assistant.redact.text.block_spans", lambda *_: []),
        patch("assistant.redact.text.next_line_spans", lambda *_: []),
        patch("assistant.redact.cuts.secret_spans", lambda _text: []),
        patch("assistant.logs.lines.secret_spans", lambda _text: []),
    ):
        yield


LOG = (
    f"near-url ConnectionError: cannot reach postgresql://bob:{canary('url')}@db:5432/runs",
    f'near-json ERROR {{"client_secret": "{canary("json")}"}}',
    *ECC[:3],
    f"{ECC[3]} (near-url https://bob:{canary('url')}@db/runs)",
    *ECC[4:],
    f"RuntimeError: near-bearer 401 for Authorization: Bearer {canary('bearer')}",
)


def planted(folder: Path) -> Scene:
    """Return a cluster that holds a secret at every way in that a cluster and a store have."""
    text = planted_text
    scene = Scene(folder, mode=Mode.PROPOSE)
    scene.cluster.partition = text("partition")
    checkpoints = folder / "checkpoints"
    run = SimulatedRun(
        fails_at=50,
        lines=LOG,
        kernel={"node02": (f"{text('kernel')} {XID[0]}",)},
        only_on="node02",
        checkpoints=checkpoints,
        cut=(40,),
    )
    scene.cluster.plan(text("name"), run)
    script = (
        f"#NIGHTSHIFT checkpoints={checkpoints} format=nightshift owner=#{text('directive')}\n"
        f'#NIGHTSHIFT resume="--load {{checkpoint}} --note near-options --api-key {canary("options")}"\n'
        f"# {text('script')}\nsrun python train.py ${{NIGHTSHIFT_RESUME_FROM:-}} ${{NIGHTSHIFT_ARGS:-}}\n"
    )
    spec = dataclasses.replace(
        scene.spec,
        name=text("name"),
        user=text("user"),
        comment=text("comment"),
        script=script,
        environment={"NEAR": "near-environment", "WANDB_API_KEY": canary("environment")},
        arguments=("near-argument", f"--password={canary('argument')}"),
    )
    scene.cluster.submit(spec)
    scene.cluster.submit(JobSpec(text("name"), f"#!/bin/sh\n# {text('script')}\n", nodes=1, work_dir=folder, user=text("user")))
    scene.cluster.set_cordon("node08", text("reason"))
    scene.cluster.controller.append(f"JobId=1 {text('controller')}")
    scene.watch(90)
    manifest = sorted(checkpoints.rglob("manifest.json"))[-1]
    content = json.loads(manifest.read_text())
    content["files"][text("tracker")] = next(iter(content["files"].values()))
    manifest.write_text(json.dumps(content))
    _plant_in_store(scene)
    return scene


def _plant_in_store(scene: Scene) -> None:
    text, store, now = planted_text, scene.engine.store, scene.clock.now()
    incident = store.incidents()[-1].id
    arguments, why, preview = {"node": text("tool")}, text("approval"), f"cordon {text('approval')}"
    for number in range(2, 8):
        opened, _ = store.open_incident(Event(EventKind.JOB_ENDED, str(number), "node03", now))
        call = Call(0, opened.id, "cordon_node", arguments, why, "playbook:x", now, CallStatus.PENDING, "aside", preview)
        decision = Decision(Verdict.ASK, "mode", "policy", now, text("approval"))
        store.park(store.write_call(call, kind="cordon").id, decision, now + timedelta(days=90_000))
        if number < 4:
            store.set_state(opened.id, IncidentState.WAITING, note=why)
    store.add_evidence(incident, text("evidence"), text("evidence"))
    store.record("watch.blind", by=text("audit"), why=text("audit"), outcome="on")
    store.add_counts({Count("incidents", (("by", text("figure")), ("reason", text("figure")))): 1})
    rule = LearnedRule(
        *("ecc_error.learned-1", RuleKind.SIGNATURE, "near-rule", (text("rule"),), "ecc_error", RuleState.ACTIVE),
        *("operator:ada", text("rule"), now),
    )
    store.add_rule(rule)
    memory = Memory(
        *(incident, "ecc_error", "restart", (text("memory"),), f"# job.log\n{text('memory')}\n", text("memory"), ("node02",)),
        *("alice/llm", "operator:ada", text("memory"), now),
    )
    store.keep_memory(memory, embedder="none", vectors=[[1.0, 0.0]])
