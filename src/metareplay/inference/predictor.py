"""The predictor: the one way from inputs to an answer, with the task given or inferred.

Estimators, evaluation, the command line and figures all use it. A prediction changes no state, so it is safe under
threads.
"""

from collections.abc import Mapping

from metareplay.benchmarks.base import Problem
from metareplay.inference.class_predictor import ClassPredictor
from metareplay.inference.real_predictor import RealPredictor

AnyPredictor = ClassPredictor | RealPredictor
PREDICTORS: Mapping[Problem, type[AnyPredictor]] = {"classification": ClassPredictor, "regression": RealPredictor}
