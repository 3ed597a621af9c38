"""Scores of recorded runs, and runs held against each other. No engine is needed."""
