"""German and Chinese questions, read into English by tables before the English reader reads them; English passes as it is.

Read `sentence` (which language it is, and what comes out), then `glosses` (the tables of knowledge/languages), `german` on
`german_forms` and `chinese` (a sentence as units), and `word_order` with `chinese_order` on `chinese_things` (English order).
"""
