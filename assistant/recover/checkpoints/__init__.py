"""Which checkpoints a job has, and which of them may be loaded: proven from the files alone, without torch.

`search` finds what a job saved: `place` says where, from site, script (`save_options`) and log; `own_folders` and `ownership`
which of it belongs to the job; `search_outcome` holds the answers and the proofs that nothing was saved, `written_files` what
speaks against them. `inventory` judges the checkpoints of a folder: `layout`, `entry`, `names` and `bundles` know how frameworks
lay them out, `inner_counts` which step a file holds, `named_saves` which place one without a number has, `slots` which files are
written in turn, `listed_saves` which of other names its program takes as well, `shards` whether one is complete, `files`,
`arrays`, `streams`, `structures` and `forms` whether its files are whole, `trackers` which of them a program takes. `aside` moves
checkpoints out of the way, `interval` says how often to save. `rotation` says when one is removed, `secured` finds those with a
second name, `second_names` makes such names; `owner_files` opens folders and decides whose files are changed.
"""
