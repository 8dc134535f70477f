"""What a diagnosis advises: a reason's general remedy gives way to what the lines of this case name.

Read `particulars` first: it chooses among the others. `slots`, `conditions` and `decisive` fill the templates of knowledge/advice/;
`demands` reads what a message itself asks for; `out_of_memory`, `stopped`, `standing` and `other_failures` know a kind of end each.
"""
