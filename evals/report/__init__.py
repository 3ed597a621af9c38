"""From the rows of a run to its summary and its page. Pure: no files, no clocks, no network."""
