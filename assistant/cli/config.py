"""`nightshift config`: every setting, where it comes from, whether the files are right; and the file that a command writes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.cli.context import Invocation, Json, app, examples, invocation_of
from assistant.cli.output import print_json, print_line
from assistant.errors import NightshiftError, UsageError

if TYPE_CHECKING:
    from assistant.config import Settings
    from assistant.policy import PolicyStanding

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
    from assistant.config.loading import describe, toml_text
    from assistant.tooling import to_json

    loaded = invocation_of(context).loaded
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
        text = toml_text(value)
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

    Prints the policy's digest, its files, what the site's file changes, and names in it that match nothing of the cluster now. Exit
    code 2 and the place when something is wrong.
    """
    from assistant.content.devices import xids
    from assistant.content.playbooks import playbooks
    from assistant.content.reading import filters
    from assistant.content.reasons import reasons
    from assistant.errors import ContentError
    from assistant.policy import short_digest

    invocation = invocation_of(context)
    loaded = invocation.loaded
    site = loaded.settings.content
    notes = _folder_notes(invocation)
    standing = invocation.in_force.look()
    if standing.problem:
        raise ContentError(f"no policy is in force, and every change is refused: {standing.problem}")
    counts = {
        "reasons": len(reasons(site)),
        "xids": len(xids(site)),
        "filters": len(filters(site)),
        "playbooks": len(playbooks(site)),
    }
    files = [str(path) for path in loaded.files]
    notes += _name_notes(invocation, standing)
    if as_json:
        facts = {"mode": standing.mode, "policy": _policy_facts(standing), "content": counts, "notes": notes}
        print_json({"ok": True, "files": files, **facts})
        return
    print_line(f"settings: right ({', '.join(files) or 'no file, defaults only'})")
    print_line(
        f"policy: right, mode {standing.mode}, digest {short_digest(standing.digest)} ({', '.join(map(str, standing.files))})"
    )
    for line in standing.overlay:
        print_line(f"  {line}")
    print_line(f"content: right ({', '.join(f'{count} {name}' for name, count in counts.items())})")
    for note in notes:
        print_line(f"note: {note}")


def _folder_notes(invocation: Invocation) -> list[str]:
    """Return that the state folder is open to others, which the next command with a store mends.

    Raises:
        ConfigError: It is not one that Nightshift may use.
    """
    from assistant.private_files import check_state_folder

    note = check_state_folder(invocation.settings.state_folder, invocation.settings.store)
    return [note] if note else []


def _name_notes(invocation: Invocation, standing: PolicyStanding) -> list[str]:
    """Return the names in the policy that match nothing of the cluster now, or why that cannot be said."""
    if standing.problem or not standing.policy.names_exactly:
        return []
    from assistant.ports import SystemClock
    from assistant.wiring import local_folder, scheduler_of

    settings = invocation.settings
    if settings.scheduler == "local" and not local_folder(settings).exists():
        return []  # to look would make a cluster
    try:
        scheduler = scheduler_of(settings, SystemClock())
        return standing.policy.unmatched(scheduler.nodes(), scheduler.jobs())
    except NightshiftError as error:
        return [f"whether the names in the policy match the cluster is not known: {error}"]


def _policy_facts(standing: PolicyStanding) -> dict[str, Any]:
    return {
        "digest": standing.digest,
        "mode": standing.mode,
        "problem": standing.problem,
        "files": [str(path) for path in standing.files],
        "overlay": list(standing.overlay),
        "kill_switch": [str(path) for path in standing.policy.kill_switch],
    }


@config_app.command(
    "policy", epilog=examples("nightshift config policy", "nightshift config policy --shipped --why 'test cluster'")
)
def show_policy(
    context: typer.Context,
    shipped: Annotated[bool, typer.Option("--shipped", help="Give up the site's own policy, whose file is gone.")] = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept in the audit.")] = "",
    as_json: Json = False,
) -> None:
    """Show which policy is in force.

    Its digest, its files, what the site's file changes, its kill switches, and names in it that match nothing of the cluster now. A
    site's policy whose file vanished is missing, and every change is refused; --shipped accepts the shipped one in its place, for
    good. Exit code 3 while none is in force.
    """
    from assistant.cli.output import Exit, print_pairs

    invocation = invocation_of(context)
    if shipped:
        _give_up(invocation, why)
    notes = _folder_notes(invocation)
    standing = invocation.in_force.look()
    notes += _name_notes(invocation, standing)
    if as_json:
        print_json({**_policy_facts(standing), "notes": notes})
    else:
        print_pairs(
            [
                ("in force", f"no: {standing.problem}" if standing.problem else "yes"),
                ("mode", standing.mode),
                ("digest", standing.digest),
                ("files", "\n".join(map(str, standing.files))),
                ("changes", "\n".join(standing.overlay)),
                ("kill switches", "\n".join(map(str, standing.policy.kill_switch))),
                ("notes", "\n".join(notes)),
            ]
        )
    if standing.problem:
        raise typer.Exit(Exit.REFUSED)


def _give_up(invocation: Invocation, why: str) -> None:
    from assistant.cli.output import user
    from assistant.errors import UsageError
    from assistant.policy import site_policy_file

    if invocation.site is not None and site_policy_file(invocation.site).is_file():
        raise UsageError(
            f"{site_policy_file(invocation.site)} exists: move it away first, or let it say no more than extends and [end]"
        )
    if invocation.store.give_up_site_policy(by=f"cli:{user()}", why=why) is None:
        raise UsageError("the store knows of no policy of this site: the shipped one is in force already")


def write_table(path: Path, lines: list[str]) -> None:
    """Write a settings file with another [model] table, or none, anew.

    Raises:
        UsageError: It would be wrong; it is left as it is.
    """
    new_text = with_table(path.read_text(encoding="utf-8") if path.is_file() else "", lines)
    _refuse_wrong(new_text, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(new_text, encoding="utf-8")
    new.replace(path)


def with_table(text: str, lines: list[str]) -> str:
    """Return a settings file with another [model] table, or none."""
    remaining = re.sub(r"(?ms)^\[model\][^\n]*\n.*?(?=^\[|\Z)", "", text).rstrip("\n")
    parts = ([remaining] if remaining else []) + (["\n".join(lines)] if lines else [])
    return "\n\n".join(parts) + "\n" if parts else ""


def _refuse_wrong(text: str, path: Path) -> None:
    import tempfile

    from assistant.config import load

    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        try:
            load(config=Path(file.name))
        except NightshiftError as error:
            raise UsageError(f"{path}: was left as it is: with the new table it would be wrong: {error}") from error


def own_settings() -> Path:
    """Return where the settings file of this user lies."""
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".config") / "nightshift" / "config.toml"
