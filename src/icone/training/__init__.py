"""Training: one loop (`fit`) around one step, with states that survive anything."""

from icone.training.loop import Fit, fit
from icone.training.progress import Display, PlainDisplay, RichDisplay, choose_display

__all__ = ["Display", "Fit", "PlainDisplay", "RichDisplay", "choose_display", "fit"]
