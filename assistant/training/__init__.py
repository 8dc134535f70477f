"""What runs inside a training job, alone: it imports nothing of ours, only NumPy and the standard library.

`python -m assistant.training.numpy_lm` is the small language model of `nightshift demo`: `numpy_lm` is its loop over several ranks,
`model` its network, data and checkpoints, `ring` a real all-reduce over TCP, `faults` are those that really happen. For any
training loop there are `heartbeat` (what a loop shows to those who watch it), `checkpoints/` (whole or not there) and
`virtual_memory/` (training of a model that does not fit the device).
"""
