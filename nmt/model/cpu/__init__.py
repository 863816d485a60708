"""CPU implementations of layers: fused linear layers, packed weights, compiled kernels."""
