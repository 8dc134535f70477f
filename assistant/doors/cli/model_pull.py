"""`nightshift model pull`: get a model."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from assistant.doors.cli.door import Door, door_of
from assistant.doors.cli.group import examples
from assistant.doors.cli.model_files import Folder, folder_of
from assistant.doors.cli.options import Json
from assistant.doors.cli.output import print_json, print_line, print_table

PULL_EXAMPLES = examples(
    "nightshift model pull OWNER/REPOSITORY                      # lists its files",
    "nightshift model pull OWNER/REPOSITORY/model-q4_k_m.gguf",
    "nightshift model pull https://mirror.example/model.gguf --sha256 HEX",
)
EVERY_S = 5.0


def pull_model(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="SOURCE", help="OWNER/REPOSITORY/FILE on Hugging Face, or a URL.")],
    sha256: Annotated[str, typer.Option("--sha256", metavar="HEX", help="That the file must have.")] = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Get a model from Hugging Face or any URL.

    What has come stays when the line breaks: the same command goes on there. The file gets its name when it is whole and right.
    HF_ENDPOINT, HF_TOKEN and the proxies of the environment count. Nothing is used before `nightshift model use`.
    """
    from assistant.llm.pull import files_of, pull, source_of

    door = door_of(context)
    if "://" not in what and what.count("/") == 1:
        files = files_of(what, os.environ)
        if as_json:
            for path, size in files:
                print_json({"source": f"{what}/{path}", "size_bytes": size})
        else:
            print_table(("source", "size"), [(f"{what}/{path}", f"{size / 1e9:.1f} GB") for path, size in files])
        return
    found = pull(source_of(what, os.environ), folder_of(folder), sha256=sha256, told=_Progress(door))
    if as_json:
        print_json({"path": str(found.path), "sha256": found.sha256, "size_bytes": found.size_bytes, "checked": found.checked})
        return
    print_line(f"{found.path}: {found.size_bytes / 1e9:.2f} GB, sha256 {found.sha256}")
    print_line(f"checked: {f'against {found.checked} sha256' if found.checked else 'the header only: no sha256 was given'}")
    print_line(f"use it with: nightshift model use {found.path}")


class _Progress:
    """Says every few seconds how far it is."""

    def __init__(self, door: Door) -> None:
        self.door, self.next = door, time.monotonic() + EVERY_S

    def __call__(self, done: int, size: int) -> None:
        """Take what has come."""
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + EVERY_S
        share = f" of {size / 1e9:.2f} GB, {100 * done / size:.0f} %" if size else ""
        self.door.say(f"{done / 1e9:.2f} GB{share}")
