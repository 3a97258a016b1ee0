"""Tables, figures, and one self-contained HTML page per run."""

from metareplay.report.figures.canvas import DARK, LIGHT, PALETTE, Theme, save_figure
from metareplay.report.figures.comparison import comparison_figure
from metareplay.report.figures.maps import Map, MapRow, Plane, boundaries_figure, maps_figure
from metareplay.report.figures.predictive import Curves, regression_figure, regression_methods_figure
from metareplay.report.figures.results import confusion_figure, learning_curves_figure, matrix_figure
from metareplay.report.figures.uncertainty import reliability_figure, strangeness_figure, uncertainty_figure
from metareplay.report.figures.weights import weights_figure
from metareplay.report.page import write_report
from metareplay.report.tables import comparison_table, run_table, seeds_table, summarise

__all__ = [
    "DARK",
    "LIGHT",
    "PALETTE",
    "Curves",
    "Map",
    "MapRow",
    "Plane",
    "Theme",
    "boundaries_figure",
    "comparison_figure",
    "comparison_table",
    "confusion_figure",
    "learning_curves_figure",
    "maps_figure",
    "matrix_figure",
    "regression_figure",
    "regression_methods_figure",
    "reliability_figure",
    "run_table",
    "save_figure",
    "seeds_table",
    "strangeness_figure",
    "summarise",
    "uncertainty_figure",
    "weights_figure",
    "write_report",
]
