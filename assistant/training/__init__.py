"""What runs inside a training job, alone: it imports nothing of ours, only NumPy and the standard library.

`python -m assistant.training.numpy_lm` is the small language model of `nightshift demo`: several ranks, a real ring all-reduce,
real checkpoints, and faults that really happen.
"""
