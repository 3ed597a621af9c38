"""``vigil load``: real sessions at their real pace against a service, and how many of them it carries."""
