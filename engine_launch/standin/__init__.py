"""The stand-in checkpoint: a tiny Qwen3-VL whose weights are programmed to say lines of a script.

``script.py`` says what may be said, ``program.py`` turns that into a table of next-token weights (pure
Python), ``checkpoint.py`` keeps the result in the cache and ``build.py`` writes it; that one needs torch and
runs inside the engine's own virtual environment.
"""
