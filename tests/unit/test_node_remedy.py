"""What people are told to do with a node that a failure accuses."""

from __future__ import annotations

import pytest

from assistant.engine.node_remedy import node_remedies
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, NodeFinding
from assistant.recover.situation import cause_words, device_name

OF_GPU = "NVRM: Xid (PCI:0000:4c:00): 119, pid=132, name=python, Timeout after 6s of waiting for RPC response from GPU3 GSP!"
BY_ADDRESS = "NVRM: Xid (PCI:0000:8b:00): 79, pid=129, name=python, GPU has fallen off the bus."


def accused(line: str, *, file: str = "dmesg.log", faulty: bool = True, reason: str = "cuda_error") -> Diagnosis:
    cited = Citation(file, 1, line, "root")
    node = NodeFinding("n4", "it said so", (cited,))
    by, action = DecidedBy.RULE, Action.CORDON_AND_RESTART
    nodes = (node,) if faulty else ()
    return Diagnosis(reason, Category.INFRASTRUCTURE, action, 0.9, by, (cited,), nodes, (), "", "")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (OF_GPU, ("node n4, GPU 3, XID 119", "NVIDIA: RESET_GPU", "nvidia-smi --gpu-reset -i 3", "nightshift nodes uncordon n4")),
        (BY_ADDRESS, ("node n4, GPU at 0000:8b:00, XID 79", "NVIDIA: ", "nightshift nodes uncordon n4")),
    ],
)
def test_the_gpu_the_vendors_action_and_the_way_back_are_told(line: str, told: tuple[str, ...]) -> None:
    (sentence,) = node_remedies(accused(line), ["n4"])
    assert [words for words in told if words not in sentence] == []


@pytest.mark.parametrize(
    ("drained", "words"),
    [(["n4"], "slurmd answer; back into service: nightshift nodes uncordon n4"), ([], "see whether it and its slurmd answer")],
)
def test_a_node_that_no_driver_accuses_is_looked_at_by_the_reason(drained: list[str], words: str) -> None:
    line = "Killing JobId=4 on failed node n4"
    (sentence,) = node_remedies(accused(line, file="slurmctld.log", reason="node_failure"), drained)
    assert sentence.startswith("node n4: look at its console and power (BMC), and ")
    assert sentence.endswith(words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nvme nvme1: I/O 415 (Read) QID 12 timeout, aborting", "its disk nvme1 (`nvme smart-log /dev/nvme1`)"),
        ("blk_update_request: I/O error, dev sdb, sector 918274560 op 0x0:(READ)", "its disk sdb (`smartctl -a /dev/sdb`)"),
        ("nvme nvme0: 8/0/0 default/read/poll queues", "look at its console and power (BMC)"),
    ],
)
def test_a_disk_of_which_the_kernel_complains_is_named(line: str, words: str) -> None:
    (sentence,) = node_remedies(accused(line, reason="node_failure"), [])
    assert words in sentence


@pytest.mark.parametrize(
    "diagnosis",
    [None, accused(OF_GPU, faulty=False), accused("EXT4-fs error on sda1"), accused(OF_GPU, file="job.log")],
)
def test_nothing_is_said_of_nodes_that_no_driver_accuses(diagnosis: Diagnosis | None) -> None:
    assert node_remedies(diagnosis, ["n4"]) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (OF_GPU, "XID 119 GPU 3 (cuda_error)"),
        (BY_ADDRESS, "XID 79 GPU at 0000:8b:00 (cuda_error)"),
    ],
)
def test_the_reason_of_a_drain_names_the_gpu(line: str, words: str) -> None:
    assert cause_words(accused(line)) == words
    assert device_name("step 3 on GPU 1") == ""
