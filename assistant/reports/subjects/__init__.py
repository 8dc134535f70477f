"""Reports about one subject: a user, a node, a week.

Read `run_totals` first (the figures that each of them has, of any set of runs). `users` makes `report user`, `nodes` `report node`
with `cordons` (when Nightshift had it out of service), `weeks` `report week`. All count the runs of `reliability` by masks, so that
their numbers are those of `report cluster`, `failures` and `reliability` over the same jobs.
"""
