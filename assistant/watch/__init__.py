"""Notice: jobs that left the queue, hangs, loss spikes. A watch looks and returns events; it changes nothing."""
