"""Questions whose words say outright what is asked, answered from the record before an intent is chosen for them.

Read `sentence` (what a rule reads, and what it returns), `parts` (two questions in one sentence), `ellipses` (follow-ups) and
`phrases` (German and Chinese wordings); then the rules with their answers: `windows` and `events` (ranges of time), `people` (jobs
of somebody), `approvals` (what waits), `consequences` (what would be, and conditions about now), `jobs` with `losses`, `nodes`,
`acts` (what Nightshift did), `outage`; `rules` tries them in order.
"""
