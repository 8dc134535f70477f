"""What a cluster's work was: figures from accounting alone, with what was left out and how sure each number is.

Read `figures` (what a report is made of), `statistics` (quantiles and intervals) and `wording` (numbers with units) first. Then as
rows travel, led by `reading`: `sources` opens a file and knows its form; `sacct_rows`, `sacct_live` and `trace_rows` bring
the forms into one table; `intake` judges each row and makes the table of jobs; `workload_types` tells the kind of their work;
`job_arrays` holds the jobs for counting, and takes names out. `cluster` makes the report and says what is unusual, with
`cluster_groups` (its tables and plots), `calendar` (weeks and hours of a zone) and `references` (five published clusters). `plots`
draws SVG, `page` writes HTML, `exports` JSON and CSV. `reliability` has the reports of failures, `subjects` those of
a user, a node and a week.

Nothing but the commands imports this folder, and DuckDB (an extra) only when a report is made.
"""
