"""Say what a person does next about the machine around a program: ports, hosts, licences, processes, devices, memory, iterations.

One function a kind of failure (`families`), as in `input_steps`.
"""

from __future__ import annotations

import re

from assistant.diagnose.advice.blocks import (
    SHOWN_OF_COMMAND,
    MessageBlock,
    MessageLine,
    command_with,
    commands_before,
    file_about,
    line_quote,
    start_words,
    work_before,
)
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts

MOST_NAMES, FIRST_FREE_PORT = 4, 1024


def expired(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a certificate or licence that has run out, with whose it is."""
    subject = "certificate" if "ertificate" in words.text else "licen" if re.search("licen", words.text, re.IGNORECASE) else ""
    file, number = file_about(block)
    work = work_before(block)
    if subject == "certificate":
        url = next((hit[0] for row in (*block.lines, *block.before) if (hit := re.search(r"https?://[\w.-]{3,120}", row.text))), "")
        host = url.partition("//")[2] or next(
            (name for row in block.lines for name in re.findall(r"\b[\w-]+(?:\.[\w-]+){1,6}\b", row.text)), ""
        )
        of_host = f" of {host}" if host else ""
        return (
            f"The certificate{of_host} has run out ({line_quote(words)}): whoever runs that service has to renew it; no "
            f"setting of the job "
            "does. First see that the clock of the node is right (date), for a wrong one reads the same."
        )
    if not subject:
        return ""
    at = f" ({file}, job.log:{number})" if file else f" ({line_quote(work)})" if work is not None else ""
    return (
        f"The licence{at} has run out ({line_quote(words)}): have it renewed by whoever keeps it, or name another that is "
        f"valid. No start "
        "and no other node changes that."
    )


def licences_in_use(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do where all licences are in use, with their server; empty where the log names none."""
    server = next((hit[0] for row in (*block.lines, *block.before) if (hit := re.search(r"\b\d{4,5}@[\w.-]{2,80}", row.text))), "")
    if not server:
        return ""
    return (
        f"All licences of {server} are in use ({line_quote(words)}): wait and start it again, start fewer at a time, or let "
        f"the batch system count "
        f"them; `lmstat -a -c {server}` shows who has them."
    )


def login_wanted(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do where an address wants a login and nobody is there to give it."""
    url = next((hit[1] for row in block.lines if (hit := re.search(r"https?://([\w.-]{3,120}[\w./~-]{0,120})", row.text))), "")
    if not url:
        return ""
    return (
        f"{url} wants a login, and a job has no terminal to ask for one (job.log:{words.number}): give the job a token "
        f"or a key that reads it "
        "(a credential helper, ~/.netrc of the account, or an address by SSH with a deploy key), or fetch it before on "
        "the login node."
    )


def port_taken(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a port that another process has, with the setting that chose it."""
    port = match["port"]
    setting_hit = next(
        (
            hit
            for row in (*block.before, *block.above)
            if (
                hit := re.search(
                    rf"(?P<name>--?[A-Za-z][\w-]{{1,40}}|[A-Za-z][\w.-]{{1,40}})[=: ]\S{{0,60}}?:?{re.escape(port)}\b", row.text
                )
            )
        ),
        None,
    )
    setting = (
        f" (it is set by {setting_hit['name']})"
        if setting_hit is not None and setting_hit["name"].lower() not in ("addr", "tcp", "port")
        else ""
    )
    return (
        f"Port {port} is taken by another process of the node{setting}: `ss -ltnp 'sport = :{port}'` there shows which. "
        f"End it if it is left of "
        f"an earlier run, or choose another port (job.log:{words.number})."
    )


def low_port(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a port that only a privileged account may take."""
    port = next((value for value in match.groupdict().values() if value), "0")
    if int(port) >= FIRST_FREE_PORT:
        return ""
    setting_hit = next((row for row in (*block.above, *block.before) if re.search(rf":{re.escape(port)}\b", row.text)), None)
    by = f", where it is set ({line_quote(setting_hit)})" if setting_hit is not None else ""
    return (
        f"Port {port} is below {FIRST_FREE_PORT}, which only a privileged account may take (job.log:{words.number}): "
        f"choose one above that{by}, or "
        "have the administrator allow it (setcap cap_net_bind_service)."
    )


def unresolved_host(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a name of a host that the node cannot resolve."""
    host = next((value for value in match.groupdict().values() if value), "").strip("'\".:")
    if "." not in host and "-" not in host and not re.search(r"\d", host):
        return ""
    setting_hit = next((row for row in block.before if host in row.text), None)
    by = f" It is named in job.log:{setting_hit.number}." if setting_hit is not None else ""
    return (
        f"The node cannot resolve the name {host} (job.log:{words.number}): `getent hosts {host}` on that node shows "
        f"it. Correct the name where it "
        f"is given, or have it entered in the DNS or /etc/hosts of the node; where other nodes know it, this node's DNS "
        f"is at fault.{by}"
    )


def other_process_count(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do where a program wants another count of processes, threads or devices than there is."""
    required, process_count, unit_name = match["wanted"], match["started"], match["thing"]
    command = command_with(process_count, block, facts)
    by = f" (`{cut(command.text, SHOWN_OF_COMMAND)}`, job.log:{command.number})" if command is not None else ""
    setting = next(
        (row for row in block.before if re.search(r"layout|decomp|grid|topology|nproc|npes", row.text, re.IGNORECASE)), None
    )
    product = f", or change the layout so that it comes to {process_count} ({line_quote(setting)})" if setting is not None else ""
    return (
        f"Start it with {required} {unit_name} in place of {process_count}{by}{product}: the two have to be the same "
        f"(job.log:{words.number})."
    )


def absent_device(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do where more workers were started than GPUs are seen."""
    visible = match["seen"]
    start = start_words(next(commands_before(block, facts), None))
    asks = next(
        (hit for row in block.before if (hit := re.search(r"--(?:gres|gpus[\w-]*)[= ](?:gpu:)?(?:\w+:)?(\d+)", row.text))),
        None,
    )
    asked_words = f" The job asked for {asks[1]} ({asks[0]})." if asks is not None else ""
    return (
        f"The program wants a device {match['index']} and sees {visible} (job.log:{words.number}): start at most {visible} "
        f"workers on the node, or "
        f"ask the batch system for more GPUs (--gres=gpu:N), as many as are started.{asked_words}{start}"
    )


def failed_allocation(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do where one array wants more memory of the host than there is; empty for a GPU."""
    if re.search(r"cuda|hip|gpu|device", " ".join(row.text for row in block.lines), re.IGNORECASE):
        return ""
    required = match["wanted"]
    free = next(
        (
            hit
            for row in (*block.lines, *block.before)
            if (
                hit := re.search(
                    r"(\d[\d.]{0,10} ?[KMGT]i?B?) (?:free|available|left)|(?:free|available):? {0,3}(\d[\d.]{0,10} ?[KMGT]i?B)",
                    row.text,
                )
            )
        ),
        None,
    )
    has = f", and {free[1] or free[2]} were free" if free is not None else ""
    size = next((row for row in block.before if re.search(r"\d ?[x×*] ?\d|grid|mesh|cells|points|dimension|size", row.text)), None)
    by = f" What it is made for: {line_quote(size)}." if size is not None and size.number != words.number else ""
    return (
        f"One array alone wants {required} of host memory{has} ({line_quote(words)}): ask for more memory than that (--mem), "
        f"spread the work over "
        f"more nodes, or make the problem smaller.{by}"
    )


def not_executable(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about a script or program that the shell may not execute."""
    name = match["name"]
    return (
        f"The shell may not execute {name} (job.log:{words.number}): `ls -l {name}` shows its mode. chmod +x {name}, or "
        f"start it by its "
        "interpreter (bash, perl, ...); on a file system that is mounted noexec copy it elsewhere."
    )


def not_converged(match: re.Match[str], words: MessageLine, block: MessageBlock, facts: Facts) -> str:
    """Return what to do about an iteration that did not converge, with the settings that the log prints of it."""
    count = next((number for number in re.findall(r"\b\d{1,7}\b", words.text)), "")
    settings: list[str] = []
    for line in facts.lines:
        if line.number >= words.number:
            break
        setting = re.search(
            r"(?P<name>[A-Za-z][\w%.-]{0,40}?(?:max|iter|mix|tol|relax|damp|steps|conv|thr|step)[\w%.-]{0,24}|(?:max"
            r"|mix|tol|nstep|iter)[\w%.-]{0,24})"
            r" {0,6}[=:] {0,6}(?P<value>-?[\d.]{1,12}(?:[eEdD][+-]?\d{1,3})?)\s*$",
            facts.streams.body(line.text[:200]).text, re.IGNORECASE,
        )  # fmt: skip
        if setting is not None:
            settings.append(f"{setting['name'].strip()} = {setting['value']} (job.log:{line.number})")
    shown_words = f" The log prints {', '.join(list(dict.fromkeys(settings))[:MOST_NAMES])}." if settings else ""
    most = f", {count} here" if count else ""
    return (
        f"The iteration did not converge ({line_quote(words)}). See in the lines before whether what it prints still falls: "
        f"then raise its most "
        f"iterations{most}; where it jumps or stays, lower the mixing or the step, start from a better guess (the "
        f"result of a looser or "
        f"smaller run), or loosen the threshold.{shown_words}"
    )
