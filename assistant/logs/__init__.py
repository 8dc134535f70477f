"""Read logs of any size in bounded memory, scan them with all rules at once, and compress them."""
