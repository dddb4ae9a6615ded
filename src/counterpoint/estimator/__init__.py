"""Training as scikit-learn's estimators do it: parameters in, ``fit`` and ``transform``."""
