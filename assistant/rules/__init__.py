"""Rules as data: compile patterns safely, match them all at once, and prove that a filter hides no error."""
