"""A loss that goes off on a node whose GPU has errors: the restart stays away from it; without a finding nothing is blamed."""

from __future__ import annotations

import dataclasses
import datetime
import shlex
from pathlib import Path

import pytest

from assistant.engine.evidence.loss_divergence import with_repeated_spike
from assistant.ports import Reply
from assistant.records import Action, Category, Event, EventKind, IncidentState, NodeState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.probes.gpu_state import GPU_MEMORY
from assistant.tools.probes.kernel_log import KERNEL_LOG
from assistant.tools.probes.system import REACHABLE
from tests.scenarios.scene import START, Scene

GPU = """<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>535.129.03</driver_version><attached_gpus>1</attached_gpus><gpu id="00000000:07:00.0">
<product_name>NVIDIA A100-SXM4-80GB</product_name><ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode><ecc_errors>
<volatile><sram_correctable>0</sram_correctable><sram_uncorrectable>0</sram_uncorrectable>
<dram_correctable>{corrected}</dram_correctable><dram_uncorrectable>{volatile}</dram_uncorrectable></volatile>
<aggregate><sram_correctable>0</sram_correctable><sram_uncorrectable>{life}</sram_uncorrectable>
<dram_correctable>0</dram_correctable><dram_uncorrectable>0</dram_uncorrectable></aggregate>
</ecc_errors></gpu></nvidia_smi_log>
"""


def spiking(folder: Path, counts: dict[str, int], first: SimulatedRun | None = None) -> Scene:
    """Return a scene whose loss jumps at step 67, with the memory errors that a GPU of node02 shows.

    Args:
        folder: Of the scene.
        counts: `volatile`, `life` or `corrected` errors.
        first: The run that goes off; one that says nothing of its GPUs when not given.
    """
    first = first or SimulatedRun(steps=200, spikes_at=67)
    scene = Scene(folder, run=first)
    checkpoints = folder / "checkpoints"
    second = SimulatedRun(steps=200)
    scene.cluster.plan("llm", *(dataclasses.replace(run, checkpoints=checkpoints) for run in (first, second)))

    def gpus(node: str) -> Reply:
        shown = {"volatile": 0, "life": 0, "corrected": 0} | (counts if node == "node02" else {})
        return Reply(node, True, 0, GPU.format(**shown), "")

    scene.cluster.answers[shlex.join(REACHABLE.command)] = lambda node: Reply(node, True, 0, "", "")
    scene.cluster.answers[shlex.join(GPU_MEMORY.command)] = gpus
    scene.cluster.submit(scene.spec)
    return scene


def test_the_restart_stays_away_from_a_node_whose_gpu_has_uncorrected_errors(tmp_path: Path) -> None:
    scene = spiking(tmp_path, {"volatile": 3})
    (incident,) = scene.watch(3600)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert scene.cluster.changes == ["submit 1", "cancel 1", "submit 2"]
    again = scene.cluster.job("2")
    assert "node02" not in again.nodes
    assert again.spec is not None
    assert "NIGHTSHIFT_SKIP_FROM" not in again.spec.environment
    call = next(call for call in scene.engine.store.calls(incident.id) if call.tool == "resubmit_job")
    assert "node02" in call.why
    assert "3 uncorrectable errors in device memory" in call.why
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert found.category is Category.INFRASTRUCTURE
    assert found.faulty_nodes == (), "the errors may be older than the job: it is stayed away from"
    assert "A GPU of node02 computes wrong, which explains the loss" in found.summary
    assert "learning rate" not in found.advice
    assert any("A GPU of node02 computes wrong" in remark.text for remark in scene.engine.good_runs.taken_remarks())


def test_a_node_whose_gpu_kernel_and_driver_call_faulty_is_taken_out_of_service(tmp_path: Path) -> None:
    scene = spiking(tmp_path, {"volatile": 3})
    xid = "NVRM: Xid (PCI:0000:07:00): 94, pid=812, name=python3, Contained: SM (0x1). RST: No, D-RST: No"
    shown = []

    def kernel(node: str) -> Reply:
        if scene.clock.now() > START + datetime.timedelta(seconds=60):
            shown.append(node)
        at = f"{START + datetime.timedelta(seconds=60):%Y-%m-%dT%H:%M:%S},000000+00:00"
        return Reply(node, True, 0, f"{at} {xid}\n" if node == "node02" and shown else "", "")

    scene.cluster.answers["dmesg"] = kernel
    scene.cluster.answers[shlex.join(KERNEL_LOG.command)] = kernel
    (incident,) = scene.watch(3600)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert scene.cluster.changes == ["submit 1", "cordon node02", "cancel 1", "submit 2"]
    assert "node02" not in scene.cluster.job("2").nodes


NONFINITE = "2026-01-05 02:01:12 | WARNING | rank2 node02 | non-finite local gradient before all-reduce: cuda:0 (others finite)"
BEHIND = "2026-01-05 02:01:12 | WARNING | rank2 node02 | non-finite gradient norm: cuda:0"


@pytest.mark.parametrize(
    ("lines", "corrected", "excluded", "drained"),
    [
        ((NONFINITE,) * 3, 5213, True, True),
        ((NONFINITE,) * 3, 0, True, False),
        ((NONFINITE.replace("cuda:0", "cuda:3"),) * 3, 5213, True, False),
        ((NONFINITE,), 5213, False, False),
        ((NONFINITE, NONFINITE.replace("rank2 node02", "rank0 node01")), 5213, False, False),
        ((BEHIND,) * 3, 5213, False, False),
    ],
    ids=["job and probe", "the job alone", "another GPU", "one line", "two nodes", "behind the reduction"],
)  # fmt: skip
def test_a_rank_that_alone_has_gradients_that_are_no_numbers_names_its_gpu(
    lines: tuple[str, ...], corrected: int, excluded: bool, drained: bool, tmp_path: Path
) -> None:
    scene = spiking(tmp_path, {"corrected": corrected}, SimulatedRun(steps=200, spikes_at=67, says_at=67, lines=lines))
    (incident,) = scene.watch(3600)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert ("cordon node02" in scene.cluster.changes) is drained
    again = scene.cluster.job("2")
    assert ("node02" not in again.nodes) is excluded
    assert again.spec is not None
    assert ("NIGHTSHIFT_SKIP_FROM" not in again.spec.environment) is excluded


@pytest.mark.parametrize("counts", [{}, {"life": 1}, {"corrected": 2}], ids=["none", "one in its whole life", "corrected ones"])
def test_without_such_an_error_no_node_is_left_out(counts: dict[str, int], tmp_path: Path) -> None:
    scene = spiking(tmp_path, counts)
    (incident,) = scene.watch(3600)
    assert incident.state is IncidentState.RECOVERED, incident.note
    again = scene.cluster.job("2")
    assert again.spec is not None
    assert again.spec.exclude == ()
    assert "NIGHTSHIFT_SKIP_FROM" in again.spec.environment
    assert all(node.state is not NodeState.DRAINED for node in scene.cluster.nodes())


@pytest.mark.parametrize(
    ("after_s", "counts", "words"),
    [
        (20, {}, "as likely as a setting"),
        (20, {"volatile": 2}, "--exclude=node02"),
        (60, {}, ""),
    ],
    ids=["at once, and nothing is found", "at once, and a GPU has errors since", "after steps of its own"],
)
def test_of_a_second_spike_at_once_on_the_same_nodes_the_machine_is_named_beside_the_settings(
    after_s: float, counts: dict[str, int], words: str, tmp_path: Path
) -> None:
    shown: dict[str, int] = {}
    scene = spiking(tmp_path, shown)
    for _ in range(60):
        scene.watch(10)
        if "submit 2" in scene.cluster.changes:
            break
    scene.clock.sleep(after_s)
    shown.update(counts)
    store, job = scene.engine.store, scene.engine.scheduler.job("2")
    spike = scene.engine.open(Event(EventKind.LOSS_SPIKE, "2", None, scene.clock.now(), {"step": 62 if after_s < 30 else 90}))
    before = store.diagnosis(1)
    assert before is not None
    assert spike.parent == 1
    found = dataclasses.replace(before, spike_step=62 if after_s < 30 else 90, advice="Lower the learning rate.")
    said = with_repeated_spike(scene.engine, spike, found, job)
    assert (words in said.advice) if words else (said == found)
    assert said.advice.endswith("Lower the learning rate.")
    assert (said.action is Action.FIX_AND_RESUBMIT) is ("setting" in words)
