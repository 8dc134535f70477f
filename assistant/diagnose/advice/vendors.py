"""Say what is advised in the words of the vendor whose GPUs a log shows: AMD's programs read other variables than NVIDIA's."""

from __future__ import annotations

import re

from assistant.diagnose.facts import Facts

_AMD = re.compile(
    r"\bHIP (?:error|out of memory|runtime)|Memory access fault by GPU|\bROCm\b|\brocm-smi|hipError|\bgfx(?:90"
    r"|94|10|11)\w|\bamdgpu\b|RCCL"
    r"|PYTORCH_HIP_ALLOC_CONF|Radeon|\bMI[123]\d\dX?\b"
)
_NVIDIA = re.compile(r"NVIDIA-SMI|CUDA error|CUDA out of memory|\bNVRM: |Tesla|GeForce|\b[AH]100\b")
_WORDS = {
    "CUDA_LAUNCH_BLOCKING=1": "AMD_SERIALIZE_KERNEL=3",
    "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_HIP_ALLOC_CONF",
    "CUDA_VISIBLE_DEVICES": "ROCR_VISIBLE_DEVICES",
    "TORCH_CUDA_ARCH_LIST": "PYTORCH_ROCM_ARCH, HSA_OVERRIDE_GFX_VERSION",
    "nvidia-smi": "rocm-smi",
    "dcgmi diag -r 3": "rvs, rocm-smi --showrasinfo",
}
"""By NVIDIA's word: AMD's (documentation of ROCm: environment variables of HIP and of PyTorch for ROCm)."""
MOST_OF_LINE = 400


def in_words_of_vendor(advice: str, facts: Facts) -> str:
    """Return advice with the words of AMD where the log shows its GPUs alone; any other as it is."""
    if not any(word in advice for word in _WORDS):
        return advice
    lines = [line.text[:MOST_OF_LINE] for line in facts.lines]
    if not any(_AMD.search(text) for text in lines) or any(_NVIDIA.search(text) for text in lines):
        return advice
    for word, words in _WORDS.items():
        advice = advice.replace(word, words)
    return advice
