"""The corruptions of pictures by which hendrycks2019 measures robustness, one module for each kind."""
