"""Prompt packs: plain text files, one folder per model family, and the loader that reads them."""
