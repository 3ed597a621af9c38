"""What a run was worth: pure functions of annotated streams and what a model did at which time."""
