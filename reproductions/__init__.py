"""One folder per paper: what only that paper needs, and its figures."""
