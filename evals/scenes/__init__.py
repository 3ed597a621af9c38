"""Synthetic annotated streams: scenes, their pixels, questions about them, and what would be right to say.

``asks`` and what it imports (``spec``, ``render``, ``levels``, ``layout``, ``truth``, ``rights``, ``skills``,
``wordings``) need numpy and Pillow alone and nothing else of Vigil: a model can be trained on them anywhere.
"""
