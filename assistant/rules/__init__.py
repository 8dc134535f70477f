"""Rules as data: compile patterns safely, match them all at once, and prove that a filter hides no error.

Read in this order: `patterns` (which are refused, and one Hyperscan database of all), `matching` (signatures, filters and
alarm words at once), `learned` (rules that are proposed, proven, and exported), `loading` (the patterns of a site, proven).
"""
