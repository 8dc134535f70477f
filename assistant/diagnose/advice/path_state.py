"""Say what a log shows of a path that could not be written or read: its mount, its disk, its owner, and who the job runs as.

Scripts print `id`, `mount`, `df` and `ls -l` at their start; where one of these lines is about the path, it decides who has to
change what.

A path that nobody wrote may come from a URL: `file://tmp/a` names a host `tmp` and the path `/a`, and not the file `/tmp/a`.
Programs that take a file by URL (rendezvous of torch.distributed, MLflow, SQLAlchemy, Spark) drop the host without a word.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from assistant.diagnose.advice.sentences import with_capital
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import message_of
from assistant.records import Citation

MOST_LINES, MOST_OF_LINE = 3000, 300
LEAST_FULL = 99
"""Percent of a file system in use from which on it is full."""
_REFUSED = re.compile(
    r"Permission denied|Operation not permitted|Read-only file system|No space left on device|[Qq]uota exceeded|Stale file handle"
)
_PATH = re.compile(r"['\"`]?(/[\w.@+=~-]+(?:/[\w.@+=~-]+)*)")
_MOUNT = re.compile(r"(?P<device>\S{1,120}) on (?P<at>/\S{0,200}) type (?P<kind>[\w.-]{2,20}) \((?P<options>[\w,.=:/-]{2,200})")
_DISK = re.compile(
    r"^\S{1,120}\s+[\d.]+[KMGTP]?i?\s+[\d.]+[KMGTP]?i?\s+(?P<free>[\d.]+[KMGTP]?i?)\s+(?P<used>\d{1,3})%\s+(?P<at>/\S{0,200})\s*$"
)
_DF = re.compile(r"(?:^|[\s+$])df -\w{1,6}\b|\bI?Use%")
_OF_INODES = re.compile(r"\bdf -\w{0,5}i|\bIUse%")
_USER = re.compile(
    r"\buid=(?P<uid>\d{1,10})\((?P<name>[\w.-]{1,40})\)|^(?:User|USER|[Rr]unning as(?: user)?)[:= ]{1,3}(?P<user>[\w.-]{2,40})\s*$"
)
_OWNED = re.compile(
    r"^(?P<rights>[dl-][rwxsStT-]{9})[.+]?\s+\d{1,6}\s+(?P<owner>[\w.-]{1,40})\s+(?P<group>[\w.-]{1,60})\s"
    r".{10,60}\s(?P<name>\S{1,200})\s*$"
)


_WITHOUT_SPACE = (
    re.compile(r"(?:^|[\s:])(?P<path>/[\w.@+=~/-]{2,300}): .{0,120}No space left"),
    re.compile(
        r"(?:[Ww]rit(?:e|ing)|[Cc]reat(?:e|ing)|[Oo]pen(?:ing)?|[Cc]opy(?:ing)?|extend)\S{0,3} "
        r".{0,80}?(?P<path>/[\w.@+=~/-]{2,300})"
    ),
    re.compile(r"(?P<path>(?<![\w'\"])/[\w.@+=~-]+(?:/[\w.@+=~-]+)+).{0,200}No space left"),
    re.compile(r"(?:^|: )(?P<name>[\w.+-][\w.@+=~/-]{1,300}): (?:Cannot|cannot|[Ww]rite|[Ff]ailed).{0,60}No space left"),
    re.compile(r"section \S{1,40} of (?P<name>[\w./+-]{1,200}): "),
)
"""Where a message without quotation marks names the file for which there was no space: from the root, or from where it runs."""


class PathState(NamedTuple):
    """What the log shows of a refused path."""

    sentence: str
    wall: bool
    """Whether it stays as it is until somebody changes it, however often the job starts."""


NO_STATE = PathState("", wall=False)


def path_without_space(text: str) -> dict[str, str]:
    """Return the path for which there was no space left, as a message without quotation marks names it, or how to find it out."""
    if re.search(r"No space left on device.{0,20}?['\"]/", text):
        return {}
    match = next((match for pattern in _WITHOUT_SPACE if (match := pattern.search(text)) is not None), None)
    groups = match.groupdict() if match is not None else {}
    if path := groups.get("path"):
        return {"full_path": path}
    if name := groups.get("name"):
        return {"full_path": f"{name} (below the folder that it runs in)"}
    return {"undecided_path": "df -h of the folder that it runs in, of TMPDIR (/tmp) and of the caches in the home folder tells"}


def path_state(cited: Citation, facts: Facts) -> PathState:
    """Return what the log shows of the path that a message says was refused; an empty sentence where it shows nothing."""
    text = " ".join(message_of(cited, facts)[:4])
    refused = _REFUSED.search(text)
    match = _PATH.search(text, refused.start()) or _PATH.search(text) if refused is not None else None
    if match is None or cited.file != "job.log":
        return NO_STATE
    path = match[1].rstrip("/.")
    words: list[str] = []
    user = ""
    wall = False
    best = ""
    of_inodes = False
    for line in facts.lines[:MOST_LINES]:
        if line.number >= cited.line:
            break
        head = line.text[:MOST_OF_LINE]
        if " type " in head and (mount := _MOUNT.search(head)) and _under(path, mount["at"]) and len(mount["at"]) > len(best):
            best, options = mount["at"], mount["options"].split(",")
            wall = "ro" in options
            only = "read-only" if wall else "for writing"
            words = [f"{best} is {mount['device']}, mounted {only} ({mount['kind']}, job.log:{line.number})"]
            if wall:
                words[0] += f": mount it for writing (rw), or write to another folder than {path}"
        elif _DF.search(head):
            of_inodes = _OF_INODES.search(head) is not None
        elif "%" in head and (disk := _DISK.search(head)) and _under(path, disk["at"]) and int(disk["used"]) >= LEAST_FULL:
            if of_inodes and disk["free"] == "0":
                files = "too many files and not too many bytes: remove small ones, or pack them (tar, squashfs, HDF5)"
                words, wall = [f"{disk['at']} has no inode left (df -i, job.log:{line.number}), which is {files}"], True
                continue
            words.append(f"{disk['at']} is {disk['used']} % full with {disk['free']} left (job.log:{line.number})")
        elif "uid=" in head or head[:1] in "UuRr":
            account = _USER.search(head)
            user = (
                f"{account['name'] or account['user']}" + (f" (uid {account['uid']})" if account["uid"] else "")
                if account is not None
                else user
            )
        elif (owned := _OWNED.match(head)) and owned["name"].strip("/").rpartition("/")[2] in path.split("/"):
            words.append(
                f"{owned['name']} belongs to {owned['owner']}:{owned['group']} with {owned['rights']} (job.log:{line.number})"
            )
    if user and "enied" in text:
        words.append(f"the job runs as {user}")
    sentence = "; ".join(words)
    return PathState(f"{with_capital(sentence)}." if sentence else "", wall)


def _under(path: str, mount: str) -> bool:
    return mount != "/" and (path == mount or path.startswith(f"{mount.rstrip('/')}/"))


_TROUBLE = re.compile(r"Permission denied|No such file or directory|Read-only file system|[Uu]nable to open|[Cc]annot open")
_PATH_OF_URL = re.compile(r"(?<![\w./:-])(/[\w.@+=~-]{1,120}(?:/[\w.@+=~-]{1,120}){0,20})")
_URL = re.compile(
    r"\b(?P<scheme>file|sqlite|duckdb)://(?P<host>[A-Za-z][\w.-]{0,60})(?P<path>/[\w.@+=~-]{1,120}(?:/[\w.@+=~-]{1,120}){0,20})"
)
"""A URL with a host where its writer meant the first folder."""
_LOCAL = frozenset({"localhost"})
MOST_AROUND, MOST_OF_URL_LINE = 60, 600


def url_account(cited: Citation, facts: Facts) -> str:
    """Return what to write in place of the URL that a refused path came from; empty where the path came from none."""
    text = " ".join(message_of(cited, facts)[:4])
    if cited.file != "job.log" or not _TROUBLE.search(text):
        return ""
    paths = {match[1].rstrip(".") for match in _PATH_OF_URL.finditer(text)}
    for line in reversed(facts.between(max(1, cited.line - MOST_AROUND), cited.line + MOST_AROUND)):
        for match in _URL.finditer(line.text[:MOST_OF_URL_LINE]):
            if match["path"] in paths and match["host"] not in _LOCAL:
                slashes = "///" if match["scheme"] == "file" else "////"
                written, corrected = match[0], f"{match['scheme']}:{slashes}{match['host']}{match['path']}"
                return (
                    f"The path {match['path']} comes from {written} (job.log:{line.number}), which names a host {match['host']} "
                    f"and not a folder: write {corrected}, in a folder that the account may write. No right has to be changed."
                )
    return ""
