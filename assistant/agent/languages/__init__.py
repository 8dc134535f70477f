"""German and Chinese questions, read into English by tables before the English reader reads them; English passes as it is.

Read `sentence` (which language it is, what comes out, what is a hold), `source_phrases` (what is put otherwise before), `glosses`
(the tables of knowledge/languages), `german` on `german_forms` and `chinese` on `chinese_spans` (a sentence as units), and
`word_order` (English clauses) with `german_order` on `subordinate` and `chinese_order` on `chinese_things` (English order).
"""
