"""Tables, figures, and one self-contained HTML page per run."""

from metareplay.report.canvas import DARK, LIGHT, PALETTE, Theme, save_figure
from metareplay.report.figures import comparison_figure, confusion_figure, learning_curves_figure, matrix_figure
from metareplay.report.page import write_report
from metareplay.report.paper_comparison import compare, finished, paper_comparison_table, write_comparison
from metareplay.report.predictive_figures import modes_figure, regression_figure
from metareplay.report.tables import comparison_table, run_table, seeds_table, summarise

__all__ = [
    "DARK",
    "LIGHT",
    "PALETTE",
    "Theme",
    "compare",
    "comparison_figure",
    "comparison_table",
    "confusion_figure",
    "finished",
    "learning_curves_figure",
    "matrix_figure",
    "modes_figure",
    "paper_comparison_table",
    "regression_figure",
    "run_table",
    "save_figure",
    "seeds_table",
    "summarise",
    "write_comparison",
    "write_report",
]
