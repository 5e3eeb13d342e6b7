"""How a command ended, for whoever started it."""

FAILED, USAGE, INTERRUPTED, TERMINATED = 1, 2, 130, 143
