"""Look in which folders of nodes a program, a module of Python, a library or a modulefile is installed."""

from __future__ import annotations

from typing import Any

from assistant.errors import ToolError
from assistant.ports import Reply
from assistant.records import Risk
from assistant.tooling import Context, tool

MOST_NODES = 32
MOST_FOLDERS = 96
MOST_FILES = 200
_PROGRAM = (
    'n=$1; shift; for d; do for f in "$d/$n" "$d/$n".*; do timeout -k 1 2 test -e "$f" || continue; k=file; '
    '[ -f "$f" ] && [ -x "$f" ] && k=program; printf "%s %s\\n" "$k" "$f"; done; done; echo end'
)
KINDS = ("program", "file")


@tool(risk=Risk.READ)
def installed_files(context: Context, nodes: list[str], name: str, folders: list[str]) -> dict[str, Any]:
    """Show where nodes have a file of a name, with any suffix: under `files` a list for each node, under `unknown` the others.

    A row has `path`, and `program` where it is a file that may be run. Nothing is run, and no folder is searched below.

    Args:
        nodes: Names of nodes; 32 are asked.
        name: Of a program, a module of Python, a library or a modulefile; one with `/` is looked for below the folders.
        folders: Absolute paths of the folders that are looked into; 96 are.
    """
    wanted_folders = [folder.rstrip("/") for folder in folders if folder.startswith("/") and "\n" not in folder][:MOST_FOLDERS]
    if not nodes or not name or name.startswith(("/", "-")) or "\n" in name or ".." in name.split("/") or not wanted_folders:
        raise ToolError("installed_files needs nodes, a name and absolute folders")
    command = ("sh", "-c", _PROGRAM, "sh", name, *wanted_folders)
    replies = context.transport.run(nodes[:MOST_NODES], command, timeout_s=min(30.0, context.command_timeout_s))
    files: dict[str, list[dict[str, Any]]] = {}
    unknown: dict[str, str] = {}
    for node, reply in replies.items():
        if reply.reached and reply.status == 0 and reply.out.rstrip().endswith("end"):
            files[node] = _rows(reply)
        else:
            unknown[node] = (reply.err or reply.out).strip()[:200] or f"status {reply.status}"
    return {"files": files, "unknown": unknown}


def _rows(reply: Reply) -> list[dict[str, Any]]:
    """Return what one node printed, a row for each file."""
    lines = [line.partition(" ") for line in reply.out.splitlines()]
    return [{"path": path, "program": kind == "program"} for kind, _, path in lines if kind in KINDS and path.startswith("/")][
        :MOST_FILES
    ]
