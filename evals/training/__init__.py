"""Training of the small model that ships with Vigil, from scratch, on synthetic scenes.

``sessions`` plays scenes through the product's own memory with a teacher in the model's place, ``tokens`` and
``examples`` turn what was asked into what is learned, ``network`` is the model for training, ``pool`` holds
the lessons, ``train`` trains and ``export`` writes the checkpoint that engines load. ``network``, ``pool``,
``train`` and ``export`` need torch. Recipe, log and results: engine_launch/standin/seeing/README.md.
"""
