"""What the cluster adds to a diagnosis that the files of the attempt alone do not show: what it saved, how its siblings fare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assistant.engine.black_holes import with_swallowing_disk
from assistant.engine.changed_files import with_changed_files
from assistant.engine.cut_files import with_cut_file
from assistant.engine.ended_servers import with_ended_server
from assistant.engine.failed_launches import with_failed_launch
from assistant.engine.faulty_gpus import with_faulty_gpu
from assistant.engine.gather import with_no_checkpoint
from assistant.engine.held_gpus import with_gpu_holder
from assistant.engine.held_ports import with_port_holder
from assistant.engine.learning_rates import with_rate_setting
from assistant.engine.lost_paths import with_lost_path
from assistant.engine.meant_exits import with_meant_exit
from assistant.engine.memory_hogs import with_memory_hog
from assistant.engine.missing_programs import with_missing_program
from assistant.engine.node_hosts import with_unreached_host
from assistant.engine.read_races import with_read_race
from assistant.engine.remaining_commands import with_remaining_commands
from assistant.engine.repeated_spikes import with_repeated_spike
from assistant.engine.senders import with_sender
from assistant.engine.siblings import with_own_divergence
from assistant.engine.slow_jobs import with_slowdown
from assistant.engine.storage import with_storage
from assistant.engine.went_on import with_wait
from assistant.records import Diagnosis, EventKind, Incident, Job
from assistant.untrusted import reading_as

if TYPE_CHECKING:
    from assistant.engine.engine import Engine


def with_surroundings(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis with what siblings, saves and storage of its job add; as it is in a replay, where none of them lives."""
    if engine.replays:
        return diagnosis
    diagnosis = with_sender(with_storage(engine, incident, with_own_divergence(engine, diagnosis, job), job), job)
    diagnosis = with_swallowing_disk(engine, incident, with_failed_launch(engine, incident, diagnosis, job), job)
    diagnosis = with_faulty_gpu(engine, incident, with_repeated_spike(engine, incident, diagnosis, job), job)
    diagnosis = with_slowdown(engine, incident, with_wait(engine, incident, diagnosis, job), job)
    if diagnosis.reason == "slow_job" and incident.kind is EventKind.SLOW_JOB:
        return diagnosis  # nothing has failed, so nothing is looked for that ended it
    diagnosis = with_unreached_host(engine, incident, with_changed_files(engine, incident, diagnosis, job), job)
    diagnosis = with_ended_server(engine, incident, with_memory_hog(engine, incident, diagnosis, job), job)
    diagnosis = with_missing_program(engine, incident, diagnosis, job)
    diagnosis = with_read_race(engine, incident, diagnosis, job)
    diagnosis = with_lost_path(engine, incident, diagnosis, job)
    diagnosis = with_gpu_holder(engine, incident, with_port_holder(engine, incident, diagnosis, job), job)
    with reading_as(job.account if job is not None else ""):
        diagnosis = with_cut_file(with_meant_exit(with_rate_setting(diagnosis, job), job), job)
        diagnosis = with_remaining_commands(diagnosis, job)
        return with_no_checkpoint(diagnosis, job, engine.checkpoint_folders, engine.clock.now())
