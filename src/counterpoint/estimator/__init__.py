"""An estimator of scikit-learn that trains an encoder: parameters, ``fit`` and ``transform``."""
