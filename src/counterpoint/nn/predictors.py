"""The predictor of BYOL and SimSiam: from an embedding of one view to the embedding of the other."""

from torch import nn

from counterpoint.nn.perceptron import perceptron


def build_predictor(features: int, hidden: int) -> nn.Sequential:
    """Two layers with BatchNorm and ReLU between them; weights are drawn from torch's generator.

    Source: grill2020, section 3.3; chen2021, section 3 (prediction MLP). BYOL's hidden layer is the wider one (256,
        4096, 256), SimSiam's a bottleneck (2048, 512, 2048).

    Args:
        features: dimensions of embedding and prediction.
        hidden: width of the hidden layer.

    >>> sum(p.numel() for p in build_predictor(3, 2).parameters())  # 3 x 2, norm 2 + 2, 2 x 3 and 3 biases
    19
    """
    return perceptron([features, hidden, features], has_norm=True)
