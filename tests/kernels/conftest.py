"""Keeps the two files that run under another set-up of triton for the processes that ``test_triton_pairs`` starts."""

import os

collect_ignore = [] if "COUNTERPOINT_TRITON_CHILD" in os.environ else ["compiled_triton.py", "interpreted_triton.py"]
