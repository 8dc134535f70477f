"""The order in which a diagnosis is compared with what the cluster shows: nodes, storage, other jobs and their servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort
    from assistant.records import Diagnosis, Incident, Job


def with_cluster_evidence(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis with what the cluster shows of its job; as it is in a replay, whose cluster is not there to be asked."""
    # late: only a diagnosis needs them, and commands that list something start sooner
    from assistant.engine.evidence import (
        broken_record,
        changed_files,
        checkpoint_settings,
        earlier_links,
        edited_files,
        ended_helpers,
        ended_servers,
        gone_inputs,
        host_shortage,
        job_sources,
        locked_files,
        loss_divergence,
        memory_requests,
        missing_data,
        missing_neighbours,
        node_faults,
        rank_counts,
        remote_hosts,
        removed_causes,
        removed_saves,
        repeated_words,
        resource_holders,
        storage,
    )
    from assistant.engine.faulty_nodes import with_swallowing_disk
    from assistant.engine.gather import with_no_checkpoint, with_sender
    from assistant.engine.outcomes.living_jobs import with_slowdown, with_wait
    from assistant.engine.outcomes.waiting_clients import with_lost_server
    from assistant.records import EventKind
    from assistant.untrusted import reading_as

    if engine.replays:
        return diagnosis
    diagnosis = loss_divergence.with_own_divergence(engine, loss_divergence.with_spike_step(engine, diagnosis, job), job)
    diagnosis = with_sender(storage.with_storage(engine, incident, diagnosis, job), job)
    diagnosis = gone_inputs.with_gone_input(engine, incident, diagnosis, job)
    diagnosis = removed_causes.with_removed_cause(engine, incident, diagnosis, job)
    diagnosis = node_faults.with_failed_launch(engine, incident, diagnosis, job)
    diagnosis = with_swallowing_disk(engine, incident, diagnosis, job)
    diagnosis = loss_divergence.with_repeated_spike(engine, incident, diagnosis, job)
    diagnosis = loss_divergence.with_faulty_gpu(engine, incident, diagnosis, job)
    diagnosis = earlier_links.with_earlier_links(engine, incident, diagnosis, job)
    diagnosis = with_lost_server(engine, incident, with_wait(engine, incident, diagnosis, job), job)
    diagnosis = ended_helpers.with_ended_helper(engine, incident, diagnosis, job)
    diagnosis = with_slowdown(engine, incident, diagnosis, job)
    if diagnosis.reason == "slow_job" and incident.kind is EventKind.SLOW_JOB:
        return diagnosis  # nothing has failed, so nothing is looked for that ended it
    diagnosis = changed_files.with_changed_files(engine, incident, diagnosis, job)
    diagnosis = remote_hosts.with_unreached_host(engine, incident, diagnosis, job)
    diagnosis = resource_holders.with_memory_hog(engine, incident, diagnosis, job)
    diagnosis = host_shortage.with_host_shortage(engine, incident, diagnosis, job)
    diagnosis = locked_files.with_file_lock(engine, incident, diagnosis, job)
    diagnosis = ended_servers.with_ended_server(engine, incident, diagnosis, job)
    diagnosis = node_faults.with_missing_program(engine, incident, diagnosis, job)
    diagnosis = removed_saves.with_remover(engine, changed_files.with_read_race(engine, incident, diagnosis, job), job)
    diagnosis = node_faults.with_lost_path(engine, incident, diagnosis, job)
    diagnosis = resource_holders.with_port_holder(engine, incident, diagnosis, job)
    diagnosis = resource_holders.with_gpu_holder(engine, incident, diagnosis, job)
    diagnosis = repeated_words.with_repeated_words(engine, incident, diagnosis, job)
    with reading_as(job.account if job is not None else ""):
        diagnosis = rank_counts.with_uneven_batches(diagnosis, job)
        diagnosis = job_sources.with_time_limit(job_sources.with_rate_setting(diagnosis, job), job)
        diagnosis = job_sources.with_deliberate_exit(diagnosis, job)
        diagnosis = job_sources.with_memory_phase(diagnosis, job, engine.checkpoint_folders, engine.clock.now())
        diagnosis = memory_requests.with_memory_request(engine, diagnosis, job)
        diagnosis = broken_record.with_broken_record(missing_data.with_cut_file(diagnosis, job), job)
        diagnosis = missing_neighbours.with_neighbours(diagnosis, job)
        diagnosis = checkpoint_settings.with_checkpoint_settings(diagnosis, job)
        diagnosis = job_sources.with_remaining_commands(diagnosis, job)
        diagnosis = edited_files.with_edits(diagnosis, job, engine.scheduler, engine.checkpoint_folders, engine.clock.now())
        return with_no_checkpoint(diagnosis, job, engine.checkpoint_folders, engine.clock.now())
