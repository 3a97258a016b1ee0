"""Tables, figures, and one self-contained HTML page per run."""

from metareplay.report.canvas import DARK, LIGHT, PALETTE, Theme, save_figure
from metareplay.report.figures import comparison_figure, confusion_figure, learning_curves_figure, matrix_figure
from metareplay.report.map_figures import Map, MapRow, Plane, boundaries_figure, maps_figure
from metareplay.report.page import write_report
from metareplay.report.paper_comparison import compare, finished, paper_comparison_table, write_comparison
from metareplay.report.predictive_figures import Curves, regression_figure, regression_methods_figure
from metareplay.report.tables import comparison_table, run_table, seeds_table, summarise
from metareplay.report.uncertainty_figures import reliability_figure, uncertainty_figure
from metareplay.report.weight_figures import weights_figure

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
    "compare",
    "comparison_figure",
    "comparison_table",
    "confusion_figure",
    "finished",
    "learning_curves_figure",
    "maps_figure",
    "matrix_figure",
    "paper_comparison_table",
    "regression_figure",
    "regression_methods_figure",
    "reliability_figure",
    "run_table",
    "save_figure",
    "seeds_table",
    "summarise",
    "uncertainty_figure",
    "weights_figure",
    "write_comparison",
    "write_report",
]
