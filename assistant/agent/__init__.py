"""The agent: answers questions about jobs, nodes and incidents from what reading tools return, and proposes changes.

Without a language model (`semantic`) the choice of a tool is learned from sentences, its arguments are names that exist, and the
answer is a template around what the tool returned. With one (`conversation`) the same tools stand open to it. Either way every
call goes through the gate, a change is only ever proposed, and an answer says what it rests on.

Read `answer` (what comes back) and `dialogue` (a question in its conversation, and the file that keeps it; `pointers` stand for
names). What understands a question: `slips` (a sentence that corrects itself), `speech` (a hold before a question, an order that
others give, a yes or no by its thing), `claims` (what is said or asked of the record itself), `languages` (German and Chinese into
English), `plain_english`, `chooser` on `words` and `node_words` (with the names in it), `spelling`, `quantities` and `descriptions`
(of jobs); `moods` (asks or orders), `orders` on `verbs`, with `holds` (what is ordered or forbidden), `scope` (what an order leaves
out, what is left), `corrections` (what puts one right or takes it back), `conditions` (when it is to be followed), `readings`
(which intent is likeliest, and what is asked back), `request_names` (what an intent needs, the job where none is named), `outright`
(what is answered before an intent is chosen), `restart_wishes`, `queries` (what of all jobs), `aspects` with `change_aspects` (what
is asked outright: how sure, whose fault, what then, was it done), `elsewhere` (another cluster),
`slurm_commands` (typed as a question) and `small_talk`. What answers:
`compose` puts together what `coverage` cannot tell, the first sentence of `forms` and `node_leads`, of `tell_aspects` or of
`tell_counsel`, and `tellers` with `tell_jobs`, `tell_incidents`, `tell_restarts`, `tell_comparison`, `tell_queries`,
`changes_asked` and `tell_changes` (whether a change was made), `evidence_times`, `waiting` (what waits already), `tell_orders`
(what no change is proposed for) and `tell_approvals` (what a yes may be for; a yes, a no); `proposals` puts a change before a
person and tells it by its record; or `toolbox` for a model, whose words `grounding` holds against the evidence.
"""
