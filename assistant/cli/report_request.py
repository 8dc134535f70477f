"""What the commands of `nightshift report` share: options, reading a source and a store, showing and writing a report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Invocation
from assistant.cli.output import now, print_json, since
from assistant.errors import UsageError

if TYPE_CHECKING:
    from assistant.reports.figures import FigureTable, ReportFrame, UsageReport
    from assistant.reports.intake import TimeRange
    from assistant.reports.reading import ReadRequest
    from assistant.reports.reliability.incident_facts import IncidentFacts

DEFAULT_LENGTH = timedelta(days=30)
SLICE_TIMEOUT_S = 300.0
"""For a day of a large cluster."""

Source = Annotated[
    str, typer.Argument(metavar="[FILE]", help="Output of sacct --parsable2, or a trace in CSV; plain or gzip, - for stdin.")
]
Columns = Annotated[Path | None, typer.Option("--columns", metavar="MAP", help="TOML that says which column of a CSV holds what.")]
Types = Annotated[
    Path | None, typer.Option("--types", metavar="RULES", help="TOML with rules for kinds of work, instead of the site's.")
]
Since = Annotated[str, typer.Option("--since", metavar="WHEN", help="Jobs that ended from then on: 30d, 2026-10-01.")]
Until = Annotated[str, typer.Option("--until", metavar="WHEN", help="Jobs that ended before then.")]
Zone = Annotated[
    str, typer.Option("--zone", metavar="NAME", help="Zone of hours and days, and of times without one: Europe/Berlin.")
]
Name = Annotated[str, typer.Option("--name", metavar="TEXT", help="What the cluster is called in the title.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write one page with plots, for any browser.")]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FOLDER", help="Write a CSV file for each figure.")]
Parquet = Annotated[Path | None, typer.Option("--parquet", metavar="FOLDER", help="Write a Parquet file for each figure.")]
Anonymise = Annotated[
    bool, typer.Option("--anonymise", help="Show no name of a user, account, partition, node, job, file or cluster.")
]
NoStore = Annotated[bool, typer.Option("--no-store", help="Leave the store's incidents out, as for a file of another cluster.")]


@dataclass(frozen=True)
class ReportOptions:
    """What was asked for on the command line."""

    source: str
    columns: Path | None
    types: Path | None
    begin: str
    until: str
    zone: str
    name: str = ""
    anonymise: bool = False


@dataclass(frozen=True)
class ReportSource:
    """How the source of a report is read."""

    request: ReadRequest
    slices: Iterator[str] | None
    progress: Callable[[str], None]
    name: str

    def frame(self, title: str, form: str, left_out: FigureTable) -> ReportFrame:
        """Return what a report says of itself."""
        from assistant.reports.figures import ReportFrame

        request = self.request
        if self.name and not request.anonymous:
            title = f"{title}: {self.name}"
        facts = [("source", form if request.anonymous else f"{request.source} ({form})")]
        limits = [
            f"{word} {at.astimezone():%Y-%m-%d %H:%M}"
            for word, at in (("from", request.period.since), ("until", request.period.until))
            if at
        ]
        if limits:
            facts.append(("ended", " ".join(limits)))
        return ReportFrame(title, request.zone, facts, left_out)


def report_source(invocation: Invocation, options: ReportOptions) -> ReportSource:
    """Return how a source is read; without one, the accounting of the Slurm here.

    Raises:
        UsageError: A time or a zone cannot be read, or the period ends before it begins.
        ContentError: The rules for kinds of work are wrong.
    """
    from assistant.reports.intake import TimeRange
    from assistant.reports.reading import ReadRequest
    from assistant.reports.workload_types import type_rules

    place = zone_of(options.zone)
    moment = now()
    first = _moment("--since", options.begin, moment)
    if not options.source and first is None:
        first = moment - DEFAULT_LENGTH
    period = TimeRange(first, _moment("--until", options.until, moment))
    if period.since is not None and period.until is not None and period.since >= period.until:
        begin = f"--since {options.begin!r}" if options.begin else f"--since, of {DEFAULT_LENGTH.days} days where it is not given,"
        raise UsageError(
            f"{begin} is {period.since:%Y-%m-%d %H:%M} UTC, not before --until {options.until!r}, "
            f"{period.until:%Y-%m-%d %H:%M} UTC; wanted a --since that is earlier than --until"
        )
    rules = type_rules(invocation.site, options.types)
    request = ReadRequest(options.source or "this cluster", rules, place, moment, period, options.columns, options.anonymise)
    slices = None if options.source else _slices(invocation, period, moment)
    return ReportSource(request, slices, lambda text: _progress(invocation, text), options.name)


def incidents_of_store(invocation: Invocation, *, without: bool) -> Sequence[IncidentFacts] | None:
    """Return the incidents of the store, None where there is no store or it is to be left out; a store is never made for it."""
    if without or not invocation.settings.store.exists():
        return None
    from assistant.reports.reliability.incident_facts import read_incidents

    return read_incidents(invocation.store, lambda text: _progress(invocation, text))


@dataclass(frozen=True)
class ReportFiles:
    """Where a report is to be written; None for nowhere."""

    html: Path | None
    csv: Path | None
    parquet: Path | None


def show(invocation: Invocation, usage_report: UsageReport, files: ReportFiles, *, as_json: bool) -> None:
    """Print a report, or write it where it was asked for.

    Raises:
        InputError: A file cannot be written.
    """
    if as_json:
        from assistant.reports.exports import as_object

        print_json(as_object(usage_report))
    elif files == ReportFiles(None, None, None):
        from assistant.cli.report_text import show_report

        show_report(usage_report)
    _write(invocation, usage_report, files)


def _slices(invocation: Invocation, period: TimeRange, moment: datetime) -> Iterator[str]:
    """Return the accounting of the Slurm here, day by day."""
    from assistant.private_files import close_state_folder
    from assistant.reports.sacct_live import LiveAccounting
    from assistant.schedulers.slurm_run import SlurmCommands

    settings = invocation.settings
    close_state_folder(settings.state_folder, settings.store)
    slurm = settings.slurm
    commands = SlurmCommands(folder=slurm.folder, conf=slurm.conf, timeout_s=max(slurm.timeout_s, SLICE_TIMEOUT_S))
    accounting = LiveAccounting(commands, settings.state_folder / "accounting")
    since = period.since or moment - DEFAULT_LENGTH
    return accounting.slices(since, period.until or moment, moment, lambda text: _progress(invocation, text))


def _progress(invocation: Invocation, text: str) -> None:
    if sys.stderr.isatty():
        invocation.say(f"nightshift: {text}")


def zone_of(name: str) -> str:
    """Return the name of a zone that is known; of this machine's where none is given.

    Raises:
        UsageError: There is no zone of that name.
    """
    from zoneinfo import ZoneInfo

    zone_name = name or _own_zone()
    try:
        ZoneInfo(zone_name)
    except (ValueError, OSError, KeyError) as error:
        raise UsageError(f"--zone {zone_name!r}: no such zone; wanted a name such as Europe/Berlin or UTC") from error
    return zone_name


def _own_zone() -> str:
    """Return the zone of this machine by its name, UTC where it has none."""
    import os

    environment_zone = os.environ.get("TZ", "").lstrip(":")
    if environment_zone:
        return environment_zone
    target = os.path.realpath("/etc/localtime")
    _, separator, zone = target.partition("zoneinfo/")
    return zone if separator else "UTC"


def _moment(option: str, text: str, at: datetime) -> datetime | None:
    try:
        return since(text, at) if text else None
    except UsageError as error:
        raise UsageError(str(error).replace("--since", option, 1)) from error


def _write(invocation: Invocation, usage_report: UsageReport, files: ReportFiles) -> None:
    import tempfile

    from assistant.output_files import output_folder, write_output

    if files.html is not None:
        from assistant.reports.page import page

        write_output(files.html, page(usage_report))
        invocation.say(f"nightshift: wrote {files.html}")
    if files.csv is not None:
        from assistant.reports.exports import csv_files

        output_folder(files.csv)
        for name, text in csv_files(usage_report):
            write_output(files.csv / name, text)
        invocation.say(f"nightshift: wrote {files.csv}")
    if files.parquet is not None:
        from assistant.reports.exports import parquet_files

        output_folder(files.parquet)
        with tempfile.TemporaryDirectory(prefix="nightshift-report-") as work:
            for name, content in parquet_files(usage_report, Path(work)):
                write_output(files.parquet / name, content)
        invocation.say(f"nightshift: wrote {files.parquet}")
