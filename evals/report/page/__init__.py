"""The page of a run: its template, style and script, put into one file by ``evals.report.render``."""
