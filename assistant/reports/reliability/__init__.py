"""What failed, why, and what it cost: the accounting's runs joined with the store's incidents.

Read `intervals` (counts, rates, means) first, then `incident_facts` (what the store says, by its reading methods only), `runs`
(each run of the accounting with its incident, its cause and the run that went on with it) and `nodes` (hours and failures of each
node). `failures` and `failure_tables` make `report failures`; `goodput` (where allocated GPU hours went), `downtime` (while nothing
ran) and `failure_rates` (times between failures, the model) are put together by `reliability`, with what people had to do;
`job_life` makes `report job`, `cost` `report cost`.
"""
