"""Conversations with a language model that outlive the process: one SQLite file beside the store, the newest of them kept."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver

from assistant.agent.answer import Source
from assistant.private_files import open_private, private_folder

KEPT_TALKS = 40
_RESULT = re.compile(r'\[(\d+)\]( It did not work:)?\s*<data from="[^"\n]{0,500}">\n(.*)\n</data>', re.DOTALL)


def open_talks(path: Path) -> SqliteSaver:
    """Return the file in which conversations are kept, with only the newest of them."""
    private_folder(path.parent)
    # SQLite gives its journal the mode of the file, so the file is made before it opens it
    os.close(open_private(path, os.O_RDWR))
    connection = sqlite3.connect(path, timeout=5.0, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    rows = connection.execute(
        "SELECT thread_id, max(checkpoint_id) AS newest FROM checkpoints GROUP BY 1 ORDER BY 2 DESC"
    ).fetchall()
    for thread, _ in rows[KEPT_TALKS:]:
        saver.delete_thread(thread)
    return saver


def recalled(path: Path, thread: str) -> tuple[list[str], list[Source]]:
    """Return what was asked in a conversation so far, and what the tools returned, as far as the model was given it."""
    if not path.exists():
        return [], []
    saver = open_talks(path)
    try:
        kept = saver.get_tuple({"configurable": {"thread_id": thread}})
    finally:
        saver.conn.close()
    messages: Sequence[BaseMessage] = kept.checkpoint["channel_values"].get("messages", []) if kept is not None else []
    asked = [str(one.text) for one in messages if isinstance(one, HumanMessage)]
    arguments: dict[str, dict[str, Any]] = {}
    sources: dict[int, Source] = {}
    for one in messages:
        if isinstance(one, AIMessage):
            arguments |= {str(call["id"]): call["args"] for call in one.tool_calls}
        elif isinstance(one, ToolMessage) and (found := _RESULT.search(str(one.text))):
            number, failed, text = int(found[1]), bool(found[2]), found[3]
            given = arguments.get(one.tool_call_id, {})
            sources[number] = Source(number, one.name or "", given, None if failed else text, text if failed else "")
    return asked, list(sources.values())
