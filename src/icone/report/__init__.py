"""What people look at: the HTML page and figures, made from what runs have saved."""

from icone.report.building import report
from icone.report.figures import FIGURES, save_figures

__all__ = ["FIGURES", "report", "save_figures"]
