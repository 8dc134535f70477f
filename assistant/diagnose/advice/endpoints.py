"""Say what is left to say of a service or a tool where no template fits: whom to ask from the node, who refused, what it printed.

A general remedy of a reason speaks of a service without its name, or of files where an account was refused that has none.
"""

from __future__ import annotations

import re

from assistant.diagnose.advice.blocks import block_of, block_text
from assistant.diagnose.advice.decisive import error_before
from assistant.diagnose.advice.families import next_step
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import message_of
from assistant.records import Citation, Diagnosis

AROUND, MOST_SHOWN = 6, 200
_URL = re.compile(r"\bhttps?://[\w.-]{2,120}(?::\d{2,5})?")
_HOST_PORT = (
    re.compile(r"host=['\"](?P<host>[\w.-]{2,120})['\"], port=(?P<port>\d{2,5})"),
    re.compile(r"(?:[Cc]onnect(?:ing|ion)?|dial tcp|server) (?:to |at |from )?['\"\[(]{0,2}(?P<host>[\w.-]{2,120}?)['\"\])]{0,2}"
               r"(?: \([\d.:]{3,40}\))?(?::|,? port )(?P<port>\d{2,5})\b"),
    re.compile(r"(?<![\w./])(?P<host>[A-Za-z][\w-]{0,60}(?:\.[\w-]{1,60}){0,6}|\d{1,3}(?:\.\d{1,3}){3}):(?P<port>\d{2,5})\b(?!:)"),
)  # fmt: skip
"""Where a message names a host and a port, the plainest form last."""
_SOURCE = re.compile(r"\.(?:py|cc|cpp|c|h|rs|go|js|java|scala|log|f90)$|^(?:line|step|epoch|iter|at|in)$", re.IGNORECASE)
_OF_FILES = re.compile(
    r"Errno 13\b|Errno 30\b|(?<![\w:/])/[\w.-]+/|\bfolder\b|\bdirector(?:y|ies)\b|\bfiles?\b|['\"][\w./-]+/[\w.-]+['\"]"
)
_OF_ACCOUNTS = re.compile(
    r"https?://|\b(?:user|account|role|token|password|login|server|service|database|cluster|index|bucket|repository|host|Error"
    r"|Exception)\b|\b40[13]\b"
)
_SPACE = re.compile(
    r"(?:maybe|perhaps|possibly|probably|might|may)\b.{0,40}\b(?:disk|space|quota)|(?:disk|space|quota)\b.{0,30}\?", re.IGNORECASE
)
_NUMBERED = re.compile(r"[Ee]rrno|\bE[A-Z]{4,8}\b|No space left on device|quota exceeded")
"""How a message guesses at a full disk, and how one says it."""
_WRAPPER = re.compile(
    r"^make(?:\[\d+\])?: \*\*\*|\b(?:non-zero exit (?:status|code)|exit(?:ed with)? (?:status|code)|returned (?:exit code )?\d)"
)


def general_account(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return what is to be done in place of the general remedy of a reason; empty where that says as much."""
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    if cited is None or cited.file != "job.log":
        return ""
    text = " ".join(message_of(cited, facts)[:3])
    if diagnosis.reason == "permission_error" and _OF_ACCOUNTS.search(text) and not _OF_FILES.search(text):
        refusal = cut(text, MOST_SHOWN).rstrip(".")
        return (
            f"A service refuses the account of the job, and the modes of files have no part in it: {refusal} "
            f"(job.log:{cited.line}). Give the job the login or key that has the right, or have the right given to it there."
        )
    if diagnosis.reason in ("os_error", "output_file_error") and _SPACE.search(text) and not _NUMBERED.search(text):
        return (
            f"The message guesses and gives no number of an error (job.log:{cited.line}: {cut(text, MOST_SHOWN).rstrip('.')}): "
            "df -h and df -i of the folder that it runs in, and the quota, show whether there is room. Where there is, see whether "
            "several processes of the job write the same file, and give each a name or a folder of its own."
        )
    if diagnosis.reason in ("connection_error", "network_error", "s3_storage_error"):
        line = facts.line(cited.line)
        if line is not None and (step := next_step(line, facts)):
            return step
        return _reached(cited, text, facts)
    if diagnosis.reason == "called_process_error" and _WRAPPER.search(text) and (sentence := _told_before(cited, facts)):
        return f"The line only says that a command failed; what that printed tells why: {sentence.rstrip('.')}."
    return ""


def _reached(cited: Citation, text: str, facts: Facts) -> str:
    lines = [text, *(line.text[:600] for line in facts.between(max(1, cited.line - AROUND), cited.line + AROUND))]
    for line in lines:
        if url := _URL.search(line):
            return _probe_sentence(f"curl -sv {url[0]}")
        for pattern in _HOST_PORT:
            for match in pattern.finditer(line):
                if not _SOURCE.search(match["host"]):
                    return _probe_sentence(f"nc -zv {match['host']} {match['port']}")
    return ""


def _probe_sentence(command: str) -> str:
    return (
        f"{command} on that node shows how it stands: where it is refused, nothing listens there (start it, or correct the "
        "address); where it times out, a firewall, a wrong network or a node without a way out is between; where it answers, the "
        "moment has passed."
    )


def _told_before(cited: Citation, facts: Facts) -> str:
    """Return what the last line before that of a wrapper tells of a failure; empty where it tells of none."""
    line = error_before(cited, facts)
    near = [each for each in facts.between(max(1, cited.line - 2), cited.line - 1) if each.text.strip()]
    line = line or (near[-1] if near and not _WRAPPER.search(near[-1].text) else None)
    if line is None:
        return ""
    block, step = block_of(line, facts), next_step(line, facts)
    sentence = (
        block_text(block) if len(block.lines) > 1 else f"job.log:{line.number}: {cut(line.text.strip(), MOST_SHOWN).rstrip('.')}"
    )
    return f"{sentence}. {step}".removesuffix(". ") if step else sentence
