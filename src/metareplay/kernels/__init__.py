"""Fused autograd functions, each beside its plain reference: the same values and gradients, in fewer passes."""
