"""What a sentence says or asks of the record itself, in English, German and Chinese, is held against the record before all else.

Read `mentions` (the names in a typed sentence, with their places), `lexicon` (words for states, changes and forms of questions) and
`question` (what a rule gets). `checks` says whether something holds of a job, a node or an approval. The rules: `pasted` (lines of
logs, commands, previews), `supposed` (what would have been), `statements` (what somebody says, takes for granted or wants
confirmed), `entries` (who, when, how often, by whose leave), `totals` (the most of all jobs) and `orders_weighed` (orders and a yes
on a condition, orders in everyday words). `answers` puts them in order; `exceptions` reads orders for all but some.
"""
