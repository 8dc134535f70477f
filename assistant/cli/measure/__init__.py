"""Commands that measure: `bench` this machine and the agent, `backtest` a history, `evaluate` a checkpoint on datasets.

`backtest` and `evaluate` are commands of their own; `evaluate_run` begins and goes on with what `evaluate` was asked for, and
`agent_bench` scores the answers for `bench agent`.
"""
