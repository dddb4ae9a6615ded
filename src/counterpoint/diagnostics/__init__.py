"""Measurements on features, as pure functions of tensors, and the findings drawn from them."""
