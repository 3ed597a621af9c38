"""``vigil eval run`` and what lives on its records: run again, asked again cold, swept over settings."""
