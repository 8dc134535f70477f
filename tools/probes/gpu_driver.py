"""Which driver a node runs: nothing is wrong with any, but nodes that fail may share one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, ok, unknown
from assistant.tools.probes._nvidia_smi import smi_probe

VERSION = re.compile(r"<driver_version>\s*([\w.]{1,40})\s*</driver_version>")


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read the driver's version out of the report."""
    found = VERSION.search(reply.out)
    return [ok(f"driver {found[1]}", found[1])] if found else [unknown("nvidia-smi -q -x names no driver")]


PROBE = smi_probe("gpu_driver", parse, "nvidia-smi -q -x")
