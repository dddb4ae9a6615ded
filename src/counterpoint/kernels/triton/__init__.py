"""The fused programs for CUDA devices."""
