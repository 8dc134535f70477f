"""What the reasons have to do with one another: which are symptoms, which are told by how a job ends, which explain which."""

from __future__ import annotations

from assistant.content.reasons import Role
from assistant.diagnose.findings import Finding

SYMPTOMS = frozenset({"nccl_timeout_error", "nccl_remote_error"})
"""Reasons that are never more than a symptom."""
HARDWARE = frozenset({"ecc_error", "nvlink_error", "node_failure", "network_error", "cuda_error"})
SPECIFIC = frozenset({"ecc_error", "nvlink_error", "node_failure"})
"""Hardware reasons that a more general text of the same failure often hides."""
EXTERNAL = frozenset({"preempted", "time_limit", "cancelled"})
ENDINGS = EXTERNAL | {"no_failure", "hang", "slow_job", "loss_spike", "unknown"}
"""Reasons that are told by how the job ended, not by an error; see `endings`."""
ROLES = {Role.ROOT: 1.0, Role.SYMPTOM: 0.5, Role.CASCADE: 0.22, Role.CONFIRMATION: 0.0}
_GPU_LIKE = ("CUDA", "NCCL", "nccl", "Cuda", "cuda", "XID", "Xid", "SIGABRT", "SIGBUS", "Aborted", "AcceleratorError", "Bus error")


def role_factor(finding: Finding) -> float:
    """Return what the role leaves of the weight: all of a root, half of a symptom, little of a cascade."""
    if finding.role is Role.ROOT and (
        finding.reason in SYMPTOMS or (finding.reason == "connection_error" and finding.weight < 0.6)
    ):
        return ROLES[Role.SYMPTOM]
    return ROLES[finding.role]


def symptomatic(finding: Finding) -> bool:
    """Tell whether a finding is no more than a symptom or cascade."""
    return role_factor(finding) < 1.0


def explains(reason: str, other: Finding) -> bool:
    """Tell whether a fault of this kind can make a job print that finding."""
    if other.reason == reason or other.reason in SYMPTOMS or other.reason in ("connection_error", "hang", "killed"):
        return True
    if reason in ("ecc_error", "nvlink_error", "cuda_error"):
        return other.reason in HARDWARE or any(word in other.text for word in _GPU_LIKE)
    if reason == "s3_storage_error":
        return other.reason in (
            "os_error",
            "file_not_found_error",
            "dataset_loading_error",
            "model_loading_error",
            "dataloader_killed",
            "permission_error",
        )
    if reason == "out_of_memory_error":
        return other.reason in ("dataloader_killed", "runtime_error", "cuda_error", "os_error")
    if reason == "node_failure":
        return other.reason in HARDWARE or other.reason in ("os_error", "s3_storage_error")
    if reason == "network_error":
        return other.reason in ("s3_storage_error", "network_error")
    return False
