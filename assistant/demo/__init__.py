"""`nightshift demo`: a real training job fails on this machine, and Nightshift brings it back."""
