"""The two-round test: which of these nodes cannot take part in a collective, told by running small ones between few nodes."""
