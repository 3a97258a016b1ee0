"""Fused autograd functions, each next to its plain reference: the same values and gradients in fewer passes."""
