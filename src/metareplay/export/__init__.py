"""Networks of a learned model as plain PyTorch modules and as ONNX graphs, scaling of inputs included."""
