"""`nightshift config`: every setting, where it comes from, and whether the files are right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.doors.cli.door import door_of
from assistant.doors.cli.group import app, examples
from assistant.doors.cli.options import Json
from assistant.doors.cli.output import print_json, print_line

if TYPE_CHECKING:
    from assistant.config import Settings

config_app = app(help="Show and check the settings.", no_args_is_help=True)


@config_app.command(
    "show",
    epilog=examples(
        "nightshift config show --origin", "nightshift config show --manual > config.toml", "nightshift config show --json"
    ),
)
def show_config(
    context: typer.Context,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
    manual: Annotated[bool, typer.Option("--manual", help="Say what each setting means.")] = False,
    as_json: Json = False,
) -> None:
    """Show every setting that holds here, as lines that a settings file may hold."""
    from assistant.config.manual import describe, shown
    from assistant.tooling import to_json

    loaded = door_of(context).loaded
    for entry in describe():
        value = _value(loaded.settings, entry.key)
        # a table of free names has one origin per name
        origins = {loaded.origins[key] for key in loaded.origins if key == entry.key or key.startswith(f"{entry.key}.")}
        whence = ", ".join(sorted(origins)) or "default"
        if as_json:
            print_json({"key": entry.key, "value": to_json(value), "origin": whence, "type": entry.type, "doc": entry.doc})
            continue
        if manual:
            print_line(f"# {entry.doc}")
        text = shown(value)
        line = f"{entry.key} = {text}" if text else f"# {entry.key} ="
        print_line(f"{line}    # {whence}" if origin else line)
        if manual:
            print_line()


def _value(settings: Settings, key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


@config_app.command("check", epilog=examples("nightshift config check", "nightshift --config new.toml config check"))
def check_config(context: typer.Context, as_json: Json = False) -> None:
    """Check the settings, the policy and all content.

    Exit code 2 and the place when something is wrong.
    """
    from assistant.content.filters import filters
    from assistant.content.playbooks import playbooks
    from assistant.content.reasons import reasons, xids
    from assistant.policy import load_policy

    loaded = door_of(context).loaded
    site = loaded.settings.content
    policy = load_policy(site)
    counts = {
        "reasons": len(reasons(site)),
        "xids": len(xids(site)),
        "filters": len(filters(site)),
        "playbooks": len(playbooks(site)),
    }
    files = [str(path) for path in loaded.files]
    if as_json:
        print_json({"ok": True, "files": files, "mode": policy.mode, "content": counts})
        return
    print_line(f"settings: right ({', '.join(files) or 'no file, defaults only'})")
    print_line(f"policy: right, mode {policy.mode}")
    print_line(f"content: right ({', '.join(f'{count} {name}' for name, count in counts.items())})")
