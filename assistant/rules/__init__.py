"""Rules as data: compile patterns safely, match them all at once, and prove that a filter hides no error.

Read in this order: `redos` (which patterns are refused), `compiling` (one Hyperscan database), `matching` (signatures, filters and
alarm words at once), `learned` (rules that are proposed, proven, and exported).
"""
