"""Views of samples: what is changed, how strongly, and by which random numbers."""
