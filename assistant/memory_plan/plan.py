"""The plan for a run that had too little memory: which shortage it is, what holds the memory, and what to change, with numbers.

A plan is a frozen record. It changes nothing; whoever carries it out later finds in it the arguments with their old and new values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from assistant.memory_plan.arguments import RunArguments
from assistant.memory_plan.estimate import MemoryPart, StageEstimate, estimate
from assistant.memory_plan.ladder import (
    ALLOCATOR,
    Calibration,
    Rung,
    TrainingEffect,
    best_combination,
    fits,
    predicted_peak,
    rungs,
)
from assistant.memory_plan.places import SpikePlace
from assistant.memory_plan.problems import HostCause, MemoryKind, MemoryProblem, MemoryReading, gib
from assistant.memory_plan.setup import GIB, Framework, TrainingSetup
from assistant.memory_plan.spelling import ChangedArgument

FITTED_STEPS = 3
"""Logged steps from which on it is proven that an ordinary step fits, or nearly so."""
ROUNDING = 1e6
"""Bytes by which a prediction may miss a figure that it was fitted to."""
LEAST_FACTOR, MOST_FACTOR = 0.3, 3.0
"""Between them a calibration is believed; beyond, the arguments were read wrongly, and that is said."""


@dataclass(frozen=True)
class MemoryPlan:
    """What to do about one run."""

    reading: MemoryReading
    run: RunArguments
    estimate: StageEstimate | None
    """Of the run as it is; None where its arguments do not tell enough."""
    peak: float | None
    """Calibrated prediction for the run as it is, bytes; None where there is none, or where the run's own end refutes it."""
    capacity: float
    """Memory of one GPU in bytes; 0 where nothing says it."""
    capacity_source: str
    calibration: Calibration
    measures: tuple[Rung, ...]
    """What the kind of shortage asks for first, whatever the model says."""
    ladder: tuple[Rung, ...]
    proposal: Rung | None
    """The combination that keeps the training the same, fits, and costs least."""
    notes: tuple[str, ...]
    """What stands against the proposal, or is missing for one."""

    @property
    def problem(self) -> MemoryProblem | None:
        """The most likely explanation; None where no shortage shows."""
        return self.reading.problems[0] if self.reading.problems else None


def make_plan(reading: MemoryReading, run: RunArguments, *, gpu_memory: float = 0.0) -> MemoryPlan:
    """Return the plan for a run.

    Args:
        reading: What its log shows; without problems the plan is about the arguments alone.
        run: What its arguments say.
        gpu_memory: Bytes of one GPU, where somebody knows; 0: as the message says.
    """
    problem = reading.problems[0] if reading.problems else None
    capacity, source = _capacity(reading, gpu_memory)
    notes = [*run.remarks, *(f"assumed: {sentence}" for sentence in run.assumed)]
    measures = tuple(_measures(problem, run)) if problem is not None else ()
    setup = run.setup
    logged_capacity = _capacity(reading, 0.0)[0]
    if gpu_memory and logged_capacity and abs(gpu_memory - logged_capacity) > 0.02 * logged_capacity:
        notes.append(f"the log tells of a GPU with {gib(logged_capacity)}; the plan is for one with {gib(gpu_memory)}, as given")
    if setup is None:
        notes.append(f"no figures are predicted: neither arguments nor log say {' and '.join(run.missing)}")
        return MemoryPlan(reading, run, None, None, capacity, source, Calibration(), measures, (), None, tuple(notes))
    calibration, doubt = calibrate(setup, reading)
    least = calibration.measured
    contradiction = reading.message.contradiction if reading.message is not None else ""
    if contradiction:
        notes.append(f"the figures of the message are not used, for they cannot all be true: {contradiction}")
    of_its_own = not contradiction and problem is not None and problem.kind not in (*_NO_SETTING, MemoryKind.FRAGMENTATION)
    if of_its_own and (own_capacity := _capacity(reading, 0.0)[0] or capacity):
        calibration, refuted = _refuted(setup, reading, calibration, own_capacity)
        doubt += refuted
        least = max(least, own_capacity)
    peak, _ = predicted_peak(setup, calibration)
    if run.conflict:
        notes.append(f"no way out is computed: {run.conflict}")
    if peak < least - ROUNDING:
        notes.append(_not_described(peak, least, calibration))
        if problem is not None and problem.kind in _NO_SETTING:
            notes.append(_NO_SETTING[problem.kind])
        return MemoryPlan(reading, run, estimate(setup), None, capacity, source, calibration, measures, (), None, tuple(notes))
    notes += doubt
    if run.conflict:
        return MemoryPlan(reading, run, estimate(setup), peak, capacity, source, calibration, measures, (), None, tuple(notes))
    if not capacity:
        notes.append("nothing says how much memory a GPU has: --gpu-memory GIB")
        return MemoryPlan(reading, run, estimate(setup), peak, 0.0, "", calibration, measures, (), None, tuple(notes))
    ladder = tuple(rungs(run, setup, capacity, calibration))
    proposal, why = _proposal(problem, run, setup, capacity, calibration)
    notes += why
    return MemoryPlan(reading, run, estimate(setup), peak, capacity, source, calibration, measures, ladder, proposal, tuple(notes))


def _capacity(reading: MemoryReading, gpu_memory: float) -> tuple[float, str]:
    if gpu_memory:
        return gpu_memory, "as given"
    message = reading.message
    if message is not None and message.total:
        allowed = min(message.allowed, message.total) if message.allowed else message.total
        return allowed, f"line {reading.line} of the log"
    return 0.0, ""


def calibrate(setup: TrainingSetup, reading: MemoryReading) -> tuple[Calibration, list[str]]:
    """Return how far a run's own figures are from the prediction, and what is doubtful about that.

    A logged peak tells both sides; what was allocated and wanted when memory ran out is a lower bound only. Weights and optimiser
    states are taken as computed: their bytes are certain, so that the difference lies in the other parts.
    """
    guess = predicted_peak(setup, Calibration())[1]
    static = guess.parts[MemoryPart.WEIGHTS] + guess.parts[MemoryPart.STATES]
    dynamic = guess.allocated - static
    message = reading.message
    measured, source = 0.0, ""
    logged = [figure for figure in reading.figures if figure.kind == "peak"]
    reserved = [figure for figure in reading.figures if figure.kind == "reserved"]
    if logged:
        highest = max(logged, key=lambda figure: figure.size)
        measured, source = highest.size, f"peak of {gib(highest.size)} in line {highest.line} of the log"
    elif reserved:  # what is reserved has the fragmentation in it, which the prediction counts by itself
        highest = max(reserved, key=lambda figure: figure.size)
        share = guess.parts[MemoryPart.FRAGMENTATION] / max(1.0, guess.allocated)
        measured = highest.size / (1 + share)
        source = f"reserved peak of {gib(highest.size)} in line {highest.line} of the log"
    if message is not None and message.form.startswith("torch") and message.allocated and not message.contradiction:
        least_bytes = message.allocated + message.requested
        if least_bytes > (measured or guess.allocated):  # else it ran out before the peak, of which it says nothing then
            measured, source = least_bytes, f"{gib(least_bytes)} allocated or wanted at line {reading.line} of the log"
    context = 0.0
    if message is not None and message.process_use and message.allocated:
        context = max(0.0, message.process_use - message.allocated - message.unused)
        context = context if context < 4 * GIB else 0.0
    if not measured or dynamic <= 0:
        return Calibration(context=context), []
    factor = (measured - static) / dynamic
    doubt = []
    if not LEAST_FACTOR <= factor <= MOST_FACTOR:
        doubt.append(
            f"the run's own figure ({source}) is far from the prediction of {gib(guess.allocated)}: the program does more, or "
            f"less, "
            "than its arguments say; take the predictions with care"
        )
    factor = min(MOST_FACTOR, max(LEAST_FACTOR, factor))
    return Calibration(factor, context, source, measured, guess.allocated), doubt


_NO_SETTING = {
    MemoryKind.FOREIGN: "no argument helps while another process holds the GPU: end it, or take another GPU, and start the "
    "run as it is",
    MemoryKind.LEAK: "no argument ends a leak, a smaller batch only puts its end off: what is kept from step to step has to go",
    MemoryKind.HOST: "it is host memory that ran out: what GPUs hold is no part of it",
    MemoryKind.SHARED: "it is /dev/shm that was full: what GPUs hold is no part of it",
    MemoryKind.LIBRARY: "another library of the process takes the memory: what PyTorch holds is no part of it",
    MemoryKind.FRACTION: "the limit was set by the process itself",
}


def _proposal(
    problem: MemoryProblem | None, run: RunArguments, setup: TrainingSetup, capacity: float, calibration: Calibration
) -> tuple[Rung | None, list[str]]:
    if problem is not None and problem.kind in _NO_SETTING and problem.confidence >= 0.6:
        return None, [_NO_SETTING[problem.kind]]
    doubt: list[str] = []
    if problem is not None and problem.kind is MemoryKind.FRAGMENTATION:
        peak, _ = predicted_peak(setup, calibration, expandable=True)
        if fits(peak, capacity, calibration):
            rung = Rung("expandable segments", (ALLOCATOR,), TrainingEffect.SAME, peak, capacity - peak, True,
                        1.0, "loads as it is", "none known")  # fmt: skip
            return rung, []
        doubt = [
            f"the message and the model disagree: by the message the memory would suffice without fragmentation, by its arguments "
            f"the run needs {gib(peak)} even so; try expandable segments first"
        ]
    if problem is None and fits(predicted_peak(setup, calibration)[0], capacity, calibration):
        return None, ["the run fits as it is"]
    best = best_combination(run, setup, capacity, calibration)
    return best, doubt if best is not None else [*doubt, _NONE_FITS]


def _refuted(
    setup: TrainingSetup, reading: MemoryReading, calibration: Calibration, capacity: float
) -> tuple[Calibration, list[str]]:
    """Return a calibration by which the run needs more than the GPU has, as its end shows, and a note where that is raised."""
    peak, _ = predicted_peak(setup, calibration)
    least = capacity + (reading.message.requested if reading.message is not None else 0.0)
    dynamic = _dynamic(setup)
    if reading.steps >= FITTED_STEPS and peak > least and dynamic > 0 and not calibration.source:
        factor = calibration.factor - (peak - least) / dynamic
        words = f"by its arguments the run would need {gib(peak)}, but {reading.steps} steps had fitted: {gib(least)} are taken"
        return replace(calibration, factor=max(LEAST_FACTOR, factor), source=f"{reading.steps} steps that fitted"), [words]
    if peak >= capacity or dynamic <= 0:
        return calibration, []
    factor = calibration.factor + (min(least, 1.5 * capacity) - peak) / dynamic
    words = (
        f"by its arguments and figures the run would need {gib(peak)} and fit, which its end refutes: it is taken to need "
        f"{gib(least)}"
    )
    return replace(calibration, factor=min(MOST_FACTOR, factor)), [words]


_NONE_FITS = (
    "no combination of settings that keeps the training the same fits: more GPUs, execution layer by layer, or another training"
)


def _not_described(peak: float, least: float, calibration: Calibration) -> str:
    source = calibration.source or "its end"
    return (
        f"the arguments do not describe the program: by them it needs {gib(peak)} at most, but it needed {gib(least)} or more "
        f"({source}); no peak is predicted and no way out computed. Give the arguments it was started with (--command, --config), "
        "or look for what else it holds"
    )


def _dynamic(setup: TrainingSetup) -> float:
    guess = predicted_peak(setup, Calibration())[1]
    return guess.allocated - guess.parts[MemoryPart.WEIGHTS] - guess.parts[MemoryPart.STATES]


def _measure(name: str, *arguments: ChangedArgument, risk: str = "none known", checkpoint: str = "loads as it is") -> Rung:
    return Rung(name, arguments, TrainingEffect.SAME, None, None, None, 1.0, checkpoint, risk)


def _environment(name: str, value: str) -> ChangedArgument:
    return ChangedArgument(name, "", value, "to be added to the environment")


def _measures(problem: MemoryProblem, run: RunArguments) -> Sequence[Rung]:
    """Return what the kind of a shortage asks for first."""
    if problem.kind is MemoryKind.HOST:
        return _of_host(problem, run)
    if problem.kind is MemoryKind.SPIKE and problem.place is not None:
        return _of_place(problem.place, run)
    simple = {
        MemoryKind.FRAGMENTATION: _measure("let the allocator grow its segments", ALLOCATOR),
        MemoryKind.FOREIGN: _measure("end the other process, or keep jobs off this GPU until it is gone (nvidia-smi names it)"),
        MemoryKind.LIBRARY: _measure(
            "keep the other library off the GPU", _environment("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
            risk="the variable is JAX's; TensorFlow wants tf.config.set_visible_devices([], 'GPU')",
        ),
        MemoryKind.FRACTION: _measure("raise the share in torch.cuda.set_per_process_memory_fraction"),
        MemoryKind.LEAK: _measure(
            "find what is kept: losses and metrics without .item() or .detach(), lists of outputs, graphs (retain_graph)",
            risk="until then each restart ends after as many steps: save often",
        ),
        MemoryKind.SHARED: _measure("a larger /dev/shm for the job (--shm-size, --ipc=host, an emptyDir in memory), or fewer "
                                    "loader workers"),
        MemoryKind.UNEVEN: _measure("give the fullest pipeline stage fewer layers, balance experts, or move what only rank 0 does"),
    }  # fmt: skip
    measure = simple.get(problem.kind)
    return (measure,) if measure is not None else ()


def _of_place(place: SpikePlace, run: RunArguments) -> Sequence[Rung]:
    transformers = run.framework is Framework.TRANSFORMERS
    evaluation = run.argument("eval_batch")
    smaller = (
        ChangedArgument(evaluation.spelling, evaluation.value, str(max(1, int(evaluation.value) // 2)), evaluation.origin)
        if evaluation is not None and evaluation.value.isdigit() and evaluation.value != "1"
        else ChangedArgument("--per_device_eval_batch_size", "", "1", "to be added to the command line")
    )
    accumulated = ChangedArgument("--eval_accumulation_steps", "", "1", "to be added to the command line")
    saving = {
        Framework.TRANSFORMERS: ChangedArgument(
            "fsdp_state_dict_type", "", "SHARDED_STATE_DICT", "in the configuration of accelerate"
        ),
        Framework.DEEPSPEED: ChangedArgument(
            "zero_optimization.stage3_gather_16bit_weights_on_model_save", "", "false", "to be added to the configuration"
        ),
        Framework.MEGATRON: ChangedArgument("--ckpt-format", "", "torch_dist", "to be added to the command line"),
    }.get(run.framework)
    by_place: dict[SpikePlace, tuple[Rung, ...]] = {
        SpikePlace.EVALUATION: (
            _measure("evaluate fewer samples at once", *((smaller, accumulated) if transformers or evaluation else ())),
        ),
        SpikePlace.SAVE: (
            _measure("save in shards, each rank its own", *((saving,) if saving else ()), checkpoint="later ones have another "
                                                                                                     "format"),
        ),
        SpikePlace.LOAD: (_measure("load to the CPU first (map_location='cpu'), or in shards (torch.distributed.checkpoint)"),),
        SpikePlace.GRAPHS: (_measure("record fewer CUDA graphs, let them share a pool, or do without"),),
        SpikePlace.COMPILE: (_measure("compile without autotuning (mode='default')"),),
        SpikePlace.NCCL: (
            _measure("leave NCCL room: smaller buffers", _environment("NCCL_BUFFSIZE", "2097152"),
                     risk="large transfers are slower"),
        ),
        SpikePlace.GENERATION: (_measure("generate fewer or shorter answers at once"),),
        SpikePlace.MODEL: (_measure("shard the weights as they are loaded, or load them in 16 bits"),),
    }  # fmt: skip
    return by_place.get(place, ())


def _of_host(problem: MemoryProblem, run: RunArguments) -> Sequence[Rung]:
    more = _measure("ask for more host memory (--mem of sbatch, the limit of the container)")
    workers = run.argument("workers")
    if problem.cause is HostCause.WORKERS and workers is not None and workers.value.isdigit() and int(workers.value) > 0:
        half = ChangedArgument(workers.spelling, workers.value, str(int(workers.value) // 2), workers.origin)
        return (_measure("fewer loader workers, each of which holds its own copy and prefetched batches", half), more)
    by_cause = {
        HostCause.WORKERS: _measure("fewer loader workers, or a smaller prefetch_factor"),
        HostCause.PINNED: _measure("pin less: pin_memory=False, or fewer batches ahead"),
        HostCause.STAGING: _measure("save in the foreground or in shards, so that no whole copy lies in host memory"),
        HostCause.OFFLOAD: _measure("offload less, or spread it over more nodes"),
        HostCause.CACHE: _measure(
            "page cache counts against the job's share and is given back; what holds it are dirty or mapped files"
        ),
    }
    measure = by_cause.get(problem.cause) if problem.cause is not None else None
    return (measure, more) if measure is not None else (more,)
