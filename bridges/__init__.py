"""One adapter per outside system. Each has a deadline on every wait and its own typed errors."""
