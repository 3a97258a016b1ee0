"""The library's front door: learn tasks one at a time, predict with the task given or inferred, save and load."""

from metareplay.estimators.classifier import ClassPrediction, ContinualClassifier
from metareplay.estimators.loading import load_estimator
from metareplay.estimators.regressor import ContinualRegressor, RealPrediction
from metareplay.estimators.streaming import Stream

__all__ = ["ClassPrediction", "ContinualClassifier", "ContinualRegressor", "RealPrediction", "Stream", "load_estimator"]
