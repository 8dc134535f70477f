"""Which checkpoints a job has, and which of them may be loaded: proven from the files alone, without torch.

`search` finds what a job saved: `place` says where, from site, script (`save_options`) and log; `own_folders` and `ownership` which
of it is the job's own; `search_outcome` holds the answers and what proves that nothing was saved. `inventory` judges the checkpoints
of one folder: `layout`, `names` and `bundles` know how frameworks lay them out, `shards` whether one is complete, `files`, `arrays`,
`streams`, `structures` and `forms` whether its files are whole, `trackers` which of them a program takes. `aside` moves checkpoints
out of the way, and `interval` says how often to save.
"""
