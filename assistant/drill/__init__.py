"""`nightshift drill`: things go wrong on purpose, here or on a real cluster, and what comes of it is compared."""
