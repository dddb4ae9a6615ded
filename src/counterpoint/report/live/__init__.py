"""The report of a run in progress: how the run stands, the page, and the server on the loopback address."""
