"""`nightshift watch`: the daemon, or one pass from cron."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from assistant.cli.context import Door, door_of
from assistant.cli.group import app, examples
from assistant.cli.options import Json
from assistant.cli.recover import exit_of, owner, print_end
from assistant.errors import UsageError

watch_app = app(help="Watch the cluster for failed, hanging and diverging jobs.")


@watch_app.command(
    epilog=examples(
        "nightshift watch",
        "nightshift watch --once",
        "*/2 * * * *  /opt/nightshift/bin/nightshift --quiet watch --once    # in a crontab",
    )
)
def watch(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Make one pass and leave, as from cron.")] = False,
    as_json: Json = False,
) -> None:
    """Watch the cluster for failed, hanging and diverging jobs.

    Opens an incident for each that is new and works on everything unfinished as far as the policy's mode allows, pass after pass
    until SIGTERM, which lets the calls that are being made finish; SIGHUP reads the settings again. Of several watches on one store
    one leads and the others stand by. `nightshift status` tells how it fares; docs/watchdog.md how it is run by systemd.

    With --once it makes one pass and prints only where there was something to do. Exit code 1 when the scheduler did not answer: a
    blind pass is no quiet pass.
    """
    door = door_of(context)
    if not once:
        if as_json:
            raise UsageError("--json goes with --once: a daemon prints no records, it keeps them: nightshift incidents --json")
        _serve(door)
        return
    from assistant.daemon.single_pass import pass_once

    engine = door.engine()
    engine.watcher.ask_beside(False)
    ends = pass_once(lambda: engine.tick(owner=owner()), door.settings, engine.store, engine)
    for end in ends:
        print_end(door, end, as_json)
    raise typer.Exit(exit_of(door, list(ends)))


def _serve(door: Door) -> None:
    from assistant.daemon.journal import listen
    from assistant.daemon.loop import serve
    from assistant.daemon.malloc import few_arenas
    from assistant.wiring import build

    few_arenas()
    settings = door.settings
    listen(settings.log, door.verbose, quiet=door.quiet)
    engine = build(settings)
    door.at_end.append(engine.store.close)
    options = [
        *(("--config", str(door.config.absolute())) if door.config is not None else ()),
        *(("--store", str(door.store_path.absolute())) if door.store_path is not None else ()),
        *(("--quiet",) if door.quiet else ()),
        *(("--verbose",) * door.verbose),
    ]
    serve(settings, engine, options=options, program=[sys.executable, "-m", "assistant"])
