"""Jobs that the controller has forgotten: from the accounting (sacct) where there is one, else from the completion log.

The first and the last column of a table of sacct are ones that users do not write.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path

from assistant.errors import Unavailable
from assistant.ports import Clock
from assistant.records import JobState, JobStep
from assistant.records.jobs import PATTERN
from assistant.schedulers.slurm_completions import end_of_log, finished_rows
from assistant.schedulers.slurm_jobs import SlurmRow, end_of, job_of
from assistant.schedulers.slurm_run import SlurmCommands
from assistant.schedulers.slurm_text import Marks, accounting_records, canceller, exit_of, job_state, value

logger = logging.getLogger(__name__)


ACCOUNTED = ("Partition", "Account", "QOS", "Timelimit", "ReqNodes", "ReqCPUS", "ReqMem", "ReqTRES", "Constraints", "Reservation")
"""Columns of sacct that say what was asked for."""
ACCOUNTED_COLUMNS = (
    "JobIDRaw",
    "JobID",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "User",
    "Partition",
    "NodeList",
    "WorkDir",
    "Comment",
    "JobName",
    "SubmitLine",
    "Reason",
    "NNodes",
)
"""Columns of sacct; the last one, and the first, never hold a newline."""
NEWER_ACCOUNTED_COLUMNS = ("DerivedExitCode", "Restarts", "StdOut", "StdErr")
"""Three of them of 23.02 and 24.11; asked for where `sacct --helpformat` names them."""
PICKED_COLUMNS = ("JobID", "JobIDRaw", *ACCOUNTED_COLUMNS[2:-1], *NEWER_ACCOUNTED_COLUMNS)
"""What a job is made of, in the order in which `_accounted_row` takes it."""


def accounted_columns(supported: Iterable[str]) -> list[str]:
    """Return the columns to ask sacct for, given those that this version knows."""
    names = set(supported)
    extra = [name for name in NEWER_ACCOUNTED_COLUMNS if name in names]
    return [*ACCOUNTED_COLUMNS[:-1], *extra, ACCOUNTED_COLUMNS[-1]]


def accounted_rows(text: str, marks: Marks, columns: Sequence[str]) -> list[SlurmRow]:
    """Return the jobs of `sacct -P`, each attempt of a job after the one before it; steps are left out.

    Without a column of restarts the attempts of an id are counted, so ask for duplicates (`-D`) where that matters.

    Raises:
        Unavailable: What sacct printed is not the whole table.
    """
    # a column that this version does not have is the empty field behind all others
    places = [columns.index(name) if name in columns else len(columns) for name in PICKED_COLUMNS]
    pick = itemgetter(*places)
    attempts: dict[str, int] = {}
    rows = []
    for fields in accounting_records(text, marks, len(columns)):
        job_id, *_ = picked = pick([*fields, ""])
        if "." in job_id:
            continue
        earlier = attempts.get(job_id, 0)
        attempts[job_id] = earlier + 1
        rows.append(_accounted_row(picked, earlier))
    return rows


def _accounted_row(picked: Sequence[str], earlier: int) -> SlurmRow:
    job_id, raw_id, state_text, status, submitted, started, ended, user, partition, node_text, *remaining = picked
    work_dir, comment, name, line, reason, steps, restarts, stdout, stderr = remaining
    job = job_of(
        job_id=job_id,
        raw_id=raw_id,
        name=name,
        user=user,
        partition=partition,
        # the accounting knows when an attempt began, whatever state it is in
        end=end_of(state_text, status, reason)._replace(has_begun=True),
        node_text=node_text,
        pattern=value(stdout) or option_in(line, OUTPUT),
        error_pattern=value(stderr) or option_in(SCRIPT_WORD.split(line)[0], ERROR),
        work_dir=work_dir,
        times=(submitted, started, ended),
        attempt=int(restarts) if restarts.isdecimal() else earlier,
        comment=value(comment) or option_in(line, COMMENT),
    )
    if name_of_canceller := canceller(state_text):
        job = replace(job, ended_by=name_of_canceller)
    worst = steps.partition(":")[0]
    if worst.isdecimal():
        job = replace(job, step_exit_code=int(worst))
    return SlurmRow(job, raw_id, "", "", line)


def option_in(line: str, option: re.Pattern[str]) -> str:
    """Return the value of an option in a line as typed, quotes lost, up to the next option; empty where it is not there."""
    match = option.search(line)
    return match.group(1) if match else ""


_VALUE = rf"(?:[= ]|(?<=\s-\w))(\S+(?:\s+{PATTERN})?)"
OUTPUT = re.compile(rf"\s(?:-o|--output){_VALUE}")
SCRIPT_WORD = re.compile(r"(?<=\s)\S{1,4096}\.(?:sh|slurm|sbatch|bash|job|sub)(?=\s|$)")
"""A script's own name: options behind it are its arguments."""
ERROR = re.compile(rf"\s(?:-e|--error){_VALUE}")
COMMENT = re.compile(rf"\s--comment{_VALUE}")


STEP_COLUMNS = ("JobID", "State", "ExitCode", "SubmitLine", "NNodes")
"""Of the steps of a job; the last one, and the first, never hold a newline."""
_STEP_ID = re.compile(r"[\d_+]{1,40}\.(\d{1,9})")


def accounted_steps(text: str, marks: Marks) -> list[JobStep]:
    """Return the steps of `sacct -P`, oldest first; the batch script and what Slurm itself runs are none.

    Raises:
        Unavailable: What sacct printed is not the whole table.
    """
    steps = []
    for step_id, state_text, status, command, _ in accounting_records(text, marks, len(STEP_COLUMNS)):
        if (match := _STEP_ID.fullmatch(step_id)) is not None:
            state = job_state(state_text)
            steps.append((int(match[1]), JobStep(step_id, state, *exit_of(status, state), value(command))))
    return [step for _, step in sorted(steps, key=itemgetter(0))]


_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)([KMGT]?)")
_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def peak_memory(text: str) -> int | None:
    """Return the largest MaxRSS of `sacct --format=JobID,MaxRSS -P`, in bytes; None where no row has one above 0."""
    sizes = [match for line in text.splitlines() if (match := _SIZE.fullmatch(line.rpartition("|")[2].strip())) is not None]
    return max((int(float(match[1]) * _BYTES[match[2]]) for match in sizes), default=0) or None


LONGEST_WAIT = timedelta(minutes=2)
"""Between two questions to the accounting: less than the 5 min (Slurm's MinJobAge) for which the controller remembers."""
NOT_HANDED_ON = re.compile(r"(?:SLURM|SBATCH|SRUN)_|(?:_|PWD|OLDPWD|SHLVL)$")
"""Variables that belong to one submission or one shell."""
FORGOTTEN_IN_MEMORY = 50_000
STEPS_AT_ONCE = 200
"""Jobs in one question to the accounting."""
STEPS_WITHOUT_ACCOUNTING = 20
"""Jobs of which the controller is asked one by one in a look."""


class SlurmHistory:
    """Ended jobs, asked for rarely and kept."""

    def __init__(
        self, commands: SlurmCommands, clock: Clock, config: Callable[[], Mapping[str, str]], *, users: Sequence[str], hours: float
    ) -> None:
        """Remember nothing yet; `config` returns Slurm's configuration."""
        self._commands, self._clock, self._config = commands, clock, config
        self._users, self._hours = tuple(users), hours
        self._columns: list[str] = []
        self._last_query: datetime | None = None
        self._ended: list[SlurmRow] = []
        self._attempts: dict[str, int] = {}
        self._steps: dict[tuple[str, int], int] = {}
        self._cancellers: dict[tuple[str, int], str] = {}
        self._job_steps: dict[tuple[str, int], tuple[JobStep, ...]] = {}

    @property
    def accounted(self) -> bool:
        """Whether there is an accounting.

        Raises:
            Unavailable: The controller, which knows it, did not answer.
        """
        return self._config().get("AccountingStorageType", "").endswith("/slurmdbd")

    def stores(self, flag: str) -> bool:
        """Return whether the accounting keeps `job_script`, `job_env` or `job_comment`."""
        return self.accounted and flag in self._config().get("AccountingStoreFlags", "").split(",")

    def recent(self, live: Sequence[SlurmRow]) -> list[SlurmRow]:
        """Return the ended jobs of the last hours that are not among those that the controller knows.

        The accounting is asked only now and then. While it does not answer, what it said last still holds.
        """
        live_ids = {row.raw_id for row in live}
        if len(self._attempts) > FORGOTTEN_IN_MEMORY:
            self._attempts.clear()
        self._attempts |= {row.raw_id: row.job.attempt for row in live}
        now = self._clock.now()
        try:
            if self._last_query is None or now - self._last_query >= self._pause():
                self._last_query = now  # also when it fails: one that hangs must not slow every look down
                if self.accounted:
                    self._ended = self._ask_recent()
        except Unavailable as error:
            logger.warning("the accounting did not answer, going on without jobs that the controller forgot: %s", error)
        return [row for row in self._ended if row.raw_id not in live_ids]

    def _pause(self) -> timedelta:
        remembered = re.match(r"(\d+)", self._config().get("MinJobAge", ""))
        return min(LONGEST_WAIT, timedelta(seconds=int(remembered.group(1)) / 2)) if remembered else LONGEST_WAIT

    def _ask_recent(self) -> list[SlurmRow]:
        users = ["--allusers"] if "*" in self._users else [f"--user={','.join(self._users)}"]
        rows = [row for row in self._ask("--starttime", f"now-{round(self._hours * 60)}minutes", *users) if row.job.state.ended]
        latest = {row.raw_id: row for row in rows}
        # Without a column of restarts, attempts have to be counted, and those of before the window count as well.
        unsure = [raw_id for raw_id, row in latest.items() if row.job.state.failed and raw_id not in self._attempts]
        if unsure and "Restarts" not in self._columns:
            counted = self._ask("--duplicates", "--jobs", ",".join(unsure))
            self._attempts |= {row.raw_id: row.job.attempt for row in counted}
        return [self._counted(row) for row in latest.values()]

    def _counted(self, row: SlurmRow) -> SlurmRow:
        attempt = max(row.job.attempt, self._attempts.get(row.raw_id, 0))
        return row._replace(job=replace(row.job, attempt=attempt))

    def with_steps(self, rows: Sequence[SlurmRow]) -> list[SlurmRow]:
        """Return rows of the controller with the exit codes of the steps of jobs that completed, asked for once a job.

        The accounting has them; without one the controller is asked for a few jobs a look. An answer that does not come is asked
        for again at the next look.
        """
        new = [row for row in rows if row.job.state is JobState.COMPLETED and _step_key(row) not in self._steps]
        try:
            if new and self.accounted:
                for first in range(0, len(new), STEPS_AT_ONCE):
                    self._ask_steps(new[first : first + STEPS_AT_ONCE])
            elif new:
                self._ask_derived(new[-STEPS_WITHOUT_ACCOUNTING:])
        except Unavailable as error:
            logger.warning("exit codes of steps are not known yet: %s", error)
        if len(self._steps) > FORGOTTEN_IN_MEMORY:
            self._steps = {key: self._steps[key] for row in rows if (key := _step_key(row)) in self._steps}
        return [
            row._replace(job=replace(row.job, step_exit_code=code))
            if (code := self._steps.get(_step_key(row))) is not None
            else row
            for row in rows
        ]

    def _ask_steps(self, rows: Sequence[SlurmRow]) -> None:
        by_id = {row.raw_id: row for row in rows}
        for accounted in self._ask("--jobs", ",".join(by_id)):
            row = by_id.get(accounted.raw_id)
            # it lags by a second or two and says RUNNING until then
            if row is not None and accounted.job.state.ended and accounted.job.step_exit_code is not None:
                self._steps[_step_key(row)] = accounted.job.step_exit_code

    def _ask_derived(self, rows: Sequence[SlurmRow]) -> None:
        for row in rows:
            completed = self._commands.run("scontrol", "show", "job", "-d", "-o", row.command_id)
            # the name stands before it, and may hold the same words
            record = completed.out.replace(f"JobName={row.job.name} ", "JobName=? ", 1)
            match = re.search(r"\sDerivedExitCode=(\d{1,9}):\d{1,9}\s", record)
            self._steps[_step_key(row)] = int(match.group(1)) if match is not None and not completed.status else 0

    def canceller(self, row: SlurmRow) -> str:
        """Return who cancelled a job that the controller still knows, by the accounting; empty where that does not say so yet.

        Raises:
            Unavailable: The accounting did not answer.
        """
        key = _step_key(row)
        if key not in self._cancellers and self.accounted:
            names = [
                accounted.job.ended_by
                for accounted in self._ask("--jobs", row.raw_id)
                if accounted.raw_id == row.raw_id and accounted.job.ended_by
            ]
            if len(self._cancellers) > FORGOTTEN_IN_MEMORY:
                self._cancellers.clear()
            if names:
                self._cancellers[key] = names[-1]
        return self._cancellers.get(key, "")

    def steps(self, row: SlurmRow) -> tuple[JobStep, ...]:
        """Return the steps of a job that ended, by the accounting; none where it does not tell all of them yet."""
        key = _step_key(row)
        if key not in self._job_steps and self.accounted:
            marks = Marks()
            form = ("--parsable2", f"--delimiter={marks.between}", f"--format={','.join(STEP_COLUMNS)}")
            completed = self._commands.run("sacct", *form, "--jobs", row.job.id.partition("+")[0])
            try:
                steps = accounted_steps(completed.out, marks) if not completed.status else []
            except Unavailable as error:
                logger.info("job=%s its steps are not known: %s", row.job.id, error)
                steps = []
            if not steps or not all(step.state.ended for step in steps):
                return ()
            if len(self._job_steps) > FORGOTTEN_IN_MEMORY:
                self._job_steps.clear()
            self._job_steps[key] = tuple(steps)
        return self._job_steps.get(key, ())

    def last(self, job_id: str) -> SlurmRow | None:
        """Return the last attempt of a job that the controller does not know; None when nobody does.

        Raises:
            Unavailable: The accounting did not answer, so nobody can tell.
        """
        if "[" in job_id:
            return None  # what waited of an array, and waits as that no more: sacct takes no such id
        if self.accounted:
            accounted = self._ask("--duplicates", "--jobs", job_id)
            rows = [row for row in accounted if row.job.id in (job_id, f"{job_id}+0")]
            by_tasks = any(row.job.id.startswith(f"{job_id}_") for row in accounted)
            if rows and (rows[-1].job.state.ended or not by_tasks):  # a row of a whole array never ends
                return _believed(self._counted(rows[-1]))
        config = self._config()
        if config.get("JobCompType") == "jobcomp/filetxt":
            finished = finished_rows(end_of_log(Path(config.get("JobCompLoc", ""))), job_id)
            return finished[-1] if finished else None
        return None

    def script(self, job_id: str) -> str:
        """Return the script of a job as the accounting keeps it; empty when it does not."""
        if not self.stores("job_script"):
            return ""
        body = _behind_rule(self._commands.run("sacct", "--batch-script", "--jobs", job_id).out)
        return body.removesuffix("\n") if body.startswith("#!") else ""

    def environment(self, job_id: str) -> dict[str, str]:
        """Return the environment of a job's submission as the accounting keeps it, without Slurm's own variables."""
        if not self.stores("job_env"):
            return {}
        variables: dict[str, str] = {}
        name = ""
        for line in _behind_rule(self._commands.run("sacct", "--env-vars", "--jobs", job_id).out).splitlines():
            start = re.match(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", line)
            if start is not None:
                name, variables[start.group(1)] = start.group(1), start.group(2)
            elif re.match(r"\S+=", line):
                name = ""  # a function of bash
            elif name:
                variables[name] += f"\n{line}"
        return {
            key: text.removesuffix("\n")
            for key, text in variables.items()
            if not NOT_HANDED_ON.match(key) or key.startswith("SLURM_RLIMIT_")
        }

    def submit_line(self, job_id: str) -> str:
        """Return how a job was submitted: the words as typed, joined by blanks; empty where there is no accounting."""
        if not self.accounted:
            return ""
        rows = [row for row in self._ask("--jobs", job_id) if row.job.id == job_id]
        return rows[-1].submit_line if rows else ""

    def asked_for(self, job_id: str) -> dict[str, str]:
        """Return what a job asked for, by column of sacct; empty where the accounting does not know it."""
        if not self.accounted:
            return {}
        marks = Marks()
        form = ("--parsable2", "--noheader", "--allocations", f"--delimiter={marks.between}", f"--format={','.join(ACCOUNTED)}")
        completed = self._commands.run("sacct", *form, "--jobs", job_id)
        values = completed.out.removesuffix("\n").split("\n")[-1].split(marks.between) if not completed.status else []
        return dict(zip(ACCOUNTED, values, strict=True)) if len(values) == len(ACCOUNTED) else {}

    def _ask(self, *words: str) -> list[SlurmRow]:
        if not self._columns:
            columns_text = self._commands.run("sacct", "--helpformat")
            if "JobID" not in columns_text.out.split():
                raise Unavailable(f"sacct does not say which columns it has: {columns_text.error_text}")
            self._columns = accounted_columns(columns_text.out.split())
        marks = Marks()
        form = ("--parsable2", "--allocations", f"--delimiter={marks.between}", f"--format={','.join(self._columns)}")
        completed = self._commands.run("sacct", *form, *words)
        if completed.status:
            raise Unavailable(f"sacct failed, so nothing is known: {completed.error_text}")
        return accounted_rows(completed.out, marks, self._columns)


def _step_key(row: SlurmRow) -> tuple[str, int]:
    """Return what tells a job that ended from a later one with its id, and from its own earlier attempts."""
    return row.raw_id, round(row.job.ended.timestamp()) if row.job.ended is not None else 0


def _believed(row: SlurmRow) -> SlurmRow:
    """Return a row of a job that the controller does not know: it runs no more, whatever the accounting was not told."""
    if row.job.state.ended:
        return row
    reason = f"the controller has forgotten it; the accounting was not told how it ended and says {row.job.state}"
    return row._replace(job=replace(row.job, state=JobState.UNKNOWN, reason=reason))


def _behind_rule(text: str) -> str:
    """Return what stands behind the line of dashes."""
    return re.sub(r"\A.*\n-{20,}\n", "", text) if re.match(r".*\n-{20,}\n", text) else ""
