"""The geometry of imbalanced classes: its figures and claims."""
