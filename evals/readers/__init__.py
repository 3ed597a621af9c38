"""Annotated streams: Vigil's own record of one, and the readers that make it of public formats."""
