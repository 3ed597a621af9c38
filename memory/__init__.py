"""What the model is shown, as pure folds over the session's log of facts. No clocks, no I/O."""
