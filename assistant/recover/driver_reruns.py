"""Whether a driver that is started again goes on with the jobs that are left: by its script, its source and its log.

Only a job that watches over others and whose log names jobs that it submitted is one; what logs steps of a training is none.
"""

from __future__ import annotations

from assistant.errors import NightshiftError
from assistant.records import Job
from assistant.recover.drivers import makes_only_missing, named_jobs, watches_over_jobs
from assistant.recover.job_program import programs_of
from assistant.recover.joblog import log_lines, log_points
from assistant.recover.source.reruns import marks_what_is_there, skips_what_is_there
from assistant.untrusted import reading_as

__all__ = ["LOG_BYTES", "goes_on_words", "jobs_named_by"]

LOG_BYTES = 1 << 20


def jobs_named_by(job: Job) -> frozenset[str]:
    """Return the ids of jobs that the log of a job says were submitted; none where it cannot be read."""
    try:
        with reading_as(job.account):
            return named_jobs(line.text for line in log_lines(job, most_bytes=LOG_BYTES))
    except (NightshiftError, OSError):
        return frozenset()


def goes_on_words(job: Job) -> str:
    """Return by what a driver goes on where it stopped when its script runs once more; empty where nothing is known, or it is none.

    Raises:
        Unavailable: The storage did not answer.
    """
    if job.spec is None or job.interactive or not jobs_named_by(job):
        return ""
    with reading_as(job.account):
        programs = programs_of(job)
        texts = [job.spec.script, *(source.text for program in programs for source in program.sources)]
        if not watches_over_jobs(texts):
            return ""
        if words := makes_only_missing(job.spec.script):
            return words
        line = skips_what_is_there(programs) or marks_what_is_there(programs)
        return f"{line} passes over what is finished" if line and not log_points(job) else ""
