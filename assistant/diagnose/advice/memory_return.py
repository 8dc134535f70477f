"""Say of a server that slept and did not get its memory back which memory that was, and who may have taken it meanwhile."""

from __future__ import annotations

import re

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import named_setting
from assistant.records import Citation

AROUND, BEFORE, MOST_OF_LINE = 12, 400, 400
"""Lines around the cited one in which the return is told of, lines before it in which the sleep is, and characters of each."""
_RETURN = re.compile(r"wake[_ ]?up|resume_memory_occupation|reload_weights|\bwaking up\b", re.IGNORECASE)
"""What servers call it when they take back the memory of a GPU that they had freed: vLLM, SGLang."""
_FREED = re.compile(r"(?:[Ss]leep (?:mode )?freed|[Rr]eleased?) (?P<freed>\d{1,5}(?:\.\d{1,3})?) ?Gi?B")
_RETURNED = re.compile(r"to wake up|woke up|POST /wake_up\S{0,40} HTTP/\d\S{0,4} 200", re.IGNORECASE)
_SHARE = ("gpu_memory_utilization", "mem_fraction_static")


def not_returned(cited: Citation, facts: Facts) -> str:
    """Return what to change where memory ran out as a server woke up from its sleep; empty of any other lack of memory."""
    if cited.file != "job.log":
        return ""
    lines = facts.between(max(1, cited.line - AROUND), cited.line + AROUND)
    returns = [line.number for line in lines if _RETURN.search(line.text[:MOST_OF_LINE])]
    wakes = max((number for number in returns if number <= cited.line), default=min(returns, default=0))
    before = facts.between(max(1, cited.line - BEFORE), cited.line - 1)
    freed = next(((m["freed"], line.number) for line in reversed(before) if (m := _FREED.search(line.text[:MOST_OF_LINE]))), None)
    if not wakes or freed is None:
        return ""
    worked = any(_RETURNED.search(line.text[:MOST_OF_LINE]) for line in before if line.number < freed[1])
    earlier = ", as it had got it back at an earlier time" if worked else ""
    share = next((value for name in _SHARE if (value := named_setting(facts, name, cited.line)) is not None), None)
    lower = f"lower {share.name} {share.value} (job.log:{share.line})" if share is not None else f"lower its share ({_SHARE[0]})"
    return (
        f"The server woke up (job.log:{wakes}) and wanted the {freed[0]} GiB back that its sleep had freed "
        f"(job.log:{freed[1]}){earlier}: "
        "meanwhile something else took the GPU, mostly another model or process (nvidia-smi shows which). Put that to sleep "
        "or end it "
        f"before this one is woken, or {lower} of one of both; then start this server again."
    )
