"""Annotated streams: Vigil's own record of one, and the readers that make it of public formats."""

from evals.readers.dataset import READERS, Dataset, open_dataset
from evals.readers.jsonl import DatasetError

__all__ = ["READERS", "Dataset", "DatasetError", "open_dataset"]
