"""The agent: answers questions about jobs, nodes and incidents from what reading tools return, and proposes changes.

Without a language model (`semantic`) the choice of a tool is learned from sentences, its arguments are names that exist, and the
answer is a template around what the tool returned. With one (`conversation`) the same tools stand open to it. Either way every
call goes through the gate, a change is only ever proposed, and an answer says what it rests on.

Read `answer` (what comes back) and `dialogue` (a question in its conversation, which `dialogue_file` keeps; `pointers` stand for
names). What understands a question: `languages` (German and Chinese into English), `chooser` on `words` and `node_words` (with the
names in it), `spelling`, `quantities` and `descriptions` (of jobs); `moods` (asks or orders), `orders` on `verbs` and
`plain_english` (what is ordered or forbidden), `scope` (what an order leaves out), `corrections` (what puts one right or takes it
back), `conditions` (when it is to be followed), `request_names` (what an intent needs), `restart_wishes`, `likeliest` (the job
where none is named), `queries` (what of all jobs), `aspects` (what is asked outright: how sure, whose fault, what then),
`elsewhere` (another cluster) and `small_talk`. What answers: `compose` puts together what `coverage` cannot tell, the first
sentence of `forms` and `node_leads`, of `tell_aspects` or of `tell_counsel`, and `tellers` with `tell_jobs`, `tell_incidents`,
`tell_restarts`, `tell_comparison`, `tell_queries`, `changes_asked` (whether a change was made), `tell_orders` (what no change is
proposed for) and `tell_approvals` (a yes, a no); `proposals` puts a change before a person and tells it by its record; or
`toolbox` for a model, whose words `grounding` holds against the evidence.
"""
