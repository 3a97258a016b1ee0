"""Data sets as tensors."""

from metareplay.data.base import LabelledImages
from metareplay.data.sources import load_digits, load_images, load_mnist

__all__ = ["LabelledImages", "load_digits", "load_images", "load_mnist"]
