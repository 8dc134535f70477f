"""Say which driver a build needs, and which is there, where a CUDA runtime finds no device to work with.

Such codes (35, 222, 802, 803, 804) are no fault of the program and hardly one of a GPU: driver, libraries and build do not fit,
or a service of the node does not run. The log mostly prints both versions somewhere: in the name of the build (`+cu124`), in the
table of nvidia-smi, in the words of the driver.

AMD's programs read other variables than NVIDIA's: `in_words_of_vendor` puts any advice into those of the vendor whose GPUs a log
shows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assistant.content.reading import build, knowledge_file, read_toml
from assistant.diagnose.advice.decisive import without_gpu
from assistant.diagnose.advice.sentences import with_capital
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import message_of
from assistant.linear_patterns import holds, linear_pattern
from assistant.records import Citation

MOST_LINES, MOST_OF_LINE = 4000, 400
"""Lines of the attempt that are read for versions, and characters of each."""
_BUILD = re.compile(
    r"(?<![\w.])(?P<name>[A-Za-z][\w-]{0,30})?[ =v:'\"]{0,12}(?P<version>\d{1,2}\.\d{1,2}[\w.]{0,10}\+cu(?P<cuda>\d{2,3}))(?![\w.])"
)
_BUILT_WITH = re.compile(
    r"(?:[Cc]ompiled|[Bb]uilt|[Bb]uild) (?:with|for|against) CUDA[ :=v]{0,3}(?P<cuda>\d{1,2}\.\d{1,2})\b"
    r"|torch\.version\.cuda\W{1,4}(?P<torch>\d{1,2}\.\d{1,2})\b"
)
_DRIVER = re.compile(
    r"Driver Version: (?P<smi>\d{3}\.[\d.]{2,8})|Kernel Module {1,3}(?:for x86_64 {1,3})?(?P<module>\d{3}\.[\d.]{2,8})"
    r"|[Dd]river (?:version )?(?:is |: ?)?v?(?P<words>\d{3}\.\d{2,3}(?:\.\d{2})?)\b"
)
_KNOWS = re.compile(r"CUDA Version: (?P<smi>\d{1,2}\.\d{1,2})|found version (?P<number>\d{4,5})\b")
_MISMATCH = re.compile(r"kernel version (?P<kernel>[\d.]{3,14}?) does not match DSO version (?P<library>[\d.]{3,14}?)(?:\s|$)")
_LIBRARY = re.compile(r"NVML library version: (?P<library>[\d.]{3,14})|client .{0,40}version (?P<client>\d{3}\.[\d.]{2,9})")
_NUMBER = re.compile(r"(?:[Ee]rror|[Ff]ailure|code|CUDA)(?: code)?[ :=(]{1,3}(?P<number>\d{2,3})\b")
_TOO_OLD = re.compile(r"driver on your system is too old \(found version (\d{4,6})\)")
SHOWN_OF_NOTICE = 160


@dataclass(frozen=True)
class _Toolkit:
    """The first driver that a toolkit came with."""

    cuda: tuple[int, ...]
    driver: str


@dataclass(frozen=True)
class _Wheel:
    """A CUDA version for which PyTorch is built."""

    cuda: tuple[int, ...]


@dataclass(frozen=True)
class _Code:
    """What a runtime answers that cannot work with the devices."""

    number: int
    names: tuple[str, ...]
    words: str
    kind: str


@dataclass(frozen=True)
class _DriversFile:
    source: str
    note: str
    toolkit: tuple[_Toolkit, ...]
    wheel: tuple[_Wheel, ...]
    code: tuple[_Code, ...]


@cache
def _drivers_file() -> _DriversFile:
    path: Path = knowledge_file("drivers.toml")
    return build(_DriversFile, read_toml(path), path)


@dataclass(frozen=True)
class Versions:
    """What a log prints of the build and of the driver; empty where it does not."""

    build: str = ""
    """As it is called there, with its line: `torch 2.5.1+cu124 (job.log:1)`."""
    cuda: tuple[int, int] | None = None
    """That the build is for."""
    driver: str = ""
    driver_line: int = 0
    knows: tuple[int, int] | None = None
    """Newest CUDA that the driver knows."""


def driver_account(cited: Citation, facts: Facts) -> tuple[str, bool]:
    """Return what the code of a runtime without a usable device asks for, and whether a restart meets it again; else empty."""
    text = " ".join(message_of(cited, facts)[:4])
    code = code_of(text)
    if code is None:
        return "", False
    versions = versions_of(facts, text)
    if code.kind == "fabric":
        return (
            "Have nvidia-fabricmanager started on that node, in the version of its driver (systemctl status nvidia-fabricmanager, "
            "nvidia-smi -q -i 0 | grep -A2 Fabric): CUDA answers 802 on machines with NVSwitch until it runs. Nothing has to be "
            "replaced unless it cannot start.",
            False,
        )
    if code.kind == "mismatch":
        return _mismatch(facts), False
    if code.kind == "compat":
        needs = f", or have the driver updated{_needed(versions)}" if versions.cuda else ", or have the driver updated"
        return (
            "Take the libcuda of cuda-compat off the search path (LD_LIBRARY_PATH without /usr/local/cuda/compat and "
            f"/usr/local/cuda-*/compat; without the package cuda-compat){needs}{_fitting_build(versions)}: code 804 is a newer "
            f"libcuda on a GPU that does not take it, which only data-centre GPUs do.{_versions_sentence(versions)}",
            True,
        )
    if code.kind == "ptx":
        return (
            f"Have the driver updated{_needed(versions, minor=True)}, or use a build for the CUDA that it knows: code 222 is code "
            f"compiled by a toolkit that is newer than the driver.{_versions_sentence(versions)}",
            True,
        )
    remedy = f"Have the driver updated{_needed(versions)}{_fitting_build(versions)}"
    return f"{remedy}: it is older than the build needs.{_versions_sentence(versions)}", True


def code_of(text: str) -> _Code | None:
    """Return the code that a message tells, by its name, its words or its number; None where it tells none that is known."""
    number = _NUMBER.search(text)
    for code in _drivers_file().code:
        if any(name in text for name in code.names) or holds(linear_pattern(code.words), text):
            return code
        if number is not None and int(number["number"]) == code.number and code.number > 100 and re.search("cuda|CUDA|Cuda", text):
            return code
    return None


def versions_of(facts: Facts, message: str) -> Versions:
    """Return the versions of build and driver that the log prints, those of the message first."""
    build_name = driver = ""
    driver_line = 0
    cuda: tuple[int, int] | None = None
    knows: tuple[int, int] | None = None
    texts = [(0, message), *((line.number, line.text[:MOST_OF_LINE]) for line in facts.lines[:MOST_LINES])]
    for number, text in texts:
        at = f" (job.log:{number})" if number else ""
        if "+cu" in text and not build_name and (match := _BUILD.search(text)):
            name = match["name"] or ""
            build_name = f"{name} {match['version']}".strip() + at
            digits = match["cuda"]
            cuda = (int(digits[:-1]), int(digits[-1]))
        if "CUDA" in text or "cuda" in text:
            if cuda is None and (built := _BUILT_WITH.search(text)):
                cuda = _pair(built["cuda"] or built["torch"])
            if knows is None and (newest := _KNOWS.search(text)):
                knows = (
                    _pair(newest["smi"]) if newest["smi"] else (int(newest["number"]) // 1000, int(newest["number"]) % 1000 // 10)
                )
        if not driver and ("river" in text or "Kernel Module" in text) and (printed := _DRIVER.search(text)):
            driver, driver_line = next(filter(None, printed.groups())).rstrip("."), number
    if knows is None and driver:
        knows = _newest_cuda(driver)
    return Versions(build_name, cuda, driver, driver_line, knows)


def _mismatch(facts: Facts) -> str:
    for line in facts.lines[:MOST_LINES]:
        if match := _MISMATCH.search(line.text[:MOST_OF_LINE]):
            return (
                f"Reboot that node, or load the kernel module anew: its module is {match['kernel']} and the libraries are "
                f"{match['library']} (job.log:{line.number}), as after an update of the driver without a reboot. In a container "
                "mount the libraries of the host (nvidia-container-toolkit) and none of its own. No GPU has to be replaced."
            )
    return (
        "Reboot that node, or load the kernel module anew (cat /proc/driver/nvidia/version against nvidia-smi): its kernel module "
        "and its libraries are of two versions, as after an update of the driver without a reboot; in a container, libraries of "
        "its own lie before those of the host. No GPU has to be replaced."
    )


def _needed(versions: Versions, *, minor: bool = False) -> str:
    """Return which driver the build needs: of its major version, or of its own where it compiles while it runs."""
    if versions.cuda is None:
        return ""
    fitting = [
        toolkit
        for toolkit in _drivers_file().toolkit
        if toolkit.cuda[0] == versions.cuda[0] and (not minor or toolkit.cuda[1] >= versions.cuda[1])
    ]
    if not fitting:
        return ""
    return f" to {fitting[-1].driver} or newer"


def _fitting_build(versions: Versions) -> str:
    """Return the newest build of PyTorch that the driver runs; empty where the log does not say which driver it is."""
    if versions.knows is None:
        return "" if versions.cuda is None else f", or install a build for an older CUDA than {_dotted(versions.cuda)}"
    major = versions.knows[0]
    wheel = next(
        (
            wheel
            for wheel in _drivers_file().wheel
            if wheel.cuda[0] <= major and (wheel.cuda[0] == major > 10 or tuple(wheel.cuda) <= versions.knows)
        ),
        None,
    )
    if wheel is None:
        return ""
    name = f"cu{wheel.cuda[0]}{wheel.cuda[1]}"
    return f", or install the build for CUDA {wheel.cuda[0]}.{wheel.cuda[1]} ({name} of PyTorch), the newest that it runs"


def _versions_sentence(versions: Versions) -> str:
    words = []
    if versions.driver:
        at = f" (job.log:{versions.driver_line})" if versions.driver_line else ""
        words.append(f"the driver is {versions.driver}{at}")
    if versions.knows is not None:
        words.append(f"{'which knows' if words else 'the driver knows'} CUDA up to {_dotted(versions.knows)}")
    if versions.build or versions.cuda is not None:
        words.append(f"the build is {versions.build or f'for CUDA {_dotted(versions.cuda or (0, 0))}'}")
    sentence = ", ".join(words)
    return f" {with_capital(sentence)}." if sentence else ""


def _newest_cuda(driver: str) -> tuple[int, int] | None:
    """Return the newest CUDA that a driver knows by its version; None for one that is older than all."""
    own = tuple(int(part) for part in driver.split(".") if part.isdigit())
    for toolkit in _drivers_file().toolkit:
        if own >= tuple(int(part) for part in toolkit.driver.split(".")):
            return toolkit.cuda[0], toolkit.cuda[1]
    return None


def _pair(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor or 0)


def _dotted(cuda: tuple[int, int]) -> str:
    return f"{cuda[0]}.{cuda[1]}"


MOST_OF_DEVICE = 400
_OTHER_DEVICE = re.compile(
    r"TPU available: (?:True|\d+ cores|[1-9])|(?:TPU|HPU|IPU|NPU|Neuron) available: (?:True|.{0,40}[1-9])"
    r"|\busing: [1-9]\d* (?:TPU|HPU|IPU|NPU|Neuron)"
    r"|PJRT_DEVICE\W{1,3}(?:TPU|NEURON)|NEURON_RT_|\bneuronx?[-_]cc\b|TpuDevice|HABANA_|\bnpu:\d"
)
"""What a run prints that uses another accelerator than a GPU."""


def without_device(facts: Facts) -> str:
    """Return that a run went on without a GPU, and how it gets one; empty where its log does not say so."""
    notice = without_gpu(facts, facts.lines[-1].number) if facts.lines else None
    if notice is None or any(_OTHER_DEVICE.search(line.text[:MOST_OF_DEVICE]) for line in facts.lines):
        return ""
    words = facts.streams.body(notice.text).text
    text = cut((words.partition("Warning: ")[2] or words).strip(), SHOWN_OF_NOTICE).rstrip(".")
    if match := _TOO_OLD.search(notice.text):
        newest = _dotted((int(match[1]) // 1000, int(match[1]) % 1000 // 10))
        remedy = (
            f"its driver knows CUDA {newest} at most, and PyTorch was built for a newer one: install a build for CUDA {newest} or "
            "older, or have the driver updated (a newer toolkit does not help)"
        )
    else:
        remedy = "see that it asked for one, that a container is handed it, and that PyTorch is the build for CUDA"
    return (
        f"But it ran without a GPU (job.log:{notice.number}: {text}): where one was meant, {remedy}, and let the program stop "
        "where torch.cuda.is_available() is False."
    )


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
