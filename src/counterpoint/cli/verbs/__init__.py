"""One module per verb: its help, its flags and what it does.

A module loads without torch, so that help is instant; what its ``run`` needs is imported when it runs.
"""
