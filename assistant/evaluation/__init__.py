"""The trial coordinator: a checkpoint is evaluated on many datasets, each node loading the model once, metrics apart from GPUs.

Read in this order:

- what a run is: `suite` (what a person asks for), `work` (datasets, pieces, trials), `files` (its folder and the journal in it)
- the coordinator: `coordinator` with `coordinator_plan` (nodes, trials); `jobs` (each submitted once, each end counted once),
  `results`
- its programs on the nodes: `stage` and `model_cache` (the model in memory), `trial`, `metric`; `sandbox` and `jail` hold
  what is not trusted; `adapters`, `demo_model` and `demo_score` are evaluators that a suite may name
- planning: `planning` (with the lower bound), `priors` (estimates from past runs); simulated: `simulate`, `replay`, `strategies`
"""
