"""Fused autograd functions, each beside its plain reference: the same value and gradients in fewer passes over memory."""
