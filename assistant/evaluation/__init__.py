"""The trial coordinator: a checkpoint is evaluated on many datasets, each node loading the model once, metrics apart from GPUs.

Read in this order:

- what a run is: `suite` (what a person asks for), `work` (datasets, pieces, trials), `files` (its folder and the journal in it)
- the coordinator: `coordinator`; `jobs` (each submitted once, each end counted once), `results` (with charts)
- its programs on the nodes: `stage` and `model_cache` (the model in memory), `trial`, `metric`; `sandbox` and `jail` hold
  what is not trusted; `adapters`, `demo_model` and `demo_score` are evaluators that a suite may name
- planning: `plan_inputs` (estimates from past runs, nodes, trials), `planning` (with the lower bound); replayed: `simulate`,
  `strategies`
"""
