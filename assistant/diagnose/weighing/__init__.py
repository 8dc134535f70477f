"""What weighs the facts of a case: findings with their role and weight, how the attempt ended, and which node is to blame.

Read `findings` and `external_findings` first, then `weighing` with `survival`, `process_exits` and `retries`, then `rivals`.
`wording` says where the wording of a line alone is no proof, `failed_items` which items failed in a run that came to its end,
`corrections` which of several starts counts and what a file was that cannot be read.
`outcome` (with `parts`: whether the whole is done, or a part) and `termination` say how the attempt ended, `loss` and
`training_failure` what became of the training, `first_failure` and `blame` where it began. `verdict.py` above puts them together.
"""
