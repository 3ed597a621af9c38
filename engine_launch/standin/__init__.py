"""Models that stand in for real ones on any machine.

``seeing/`` holds the one that sees: weights that were trained, and what they can do. The others are built in
the cache, with weights that are programmed to say lines of a script: ``script.py`` says what may be said,
``program.py`` turns that into a table of next-token weights (pure Python), ``checkpoint.py`` keeps the result
and ``build.py`` writes it; that one needs torch and runs inside the engine's own virtual environment.
"""
