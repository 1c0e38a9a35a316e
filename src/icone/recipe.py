"""The version of the default recipe: what makes results of one version of the software comparable with another's."""

from __future__ import annotations

RECIPE_VERSION = 2
"""A number that is raised whenever the same configuration starts to train or measure something else.

It is part of the key of every run of a sweep, and of the saved state of a run, which only the same version resumes.
Version 1 is that of icone 0.1.0 as first landed; version 2 scales every channel by its own intensity range, measures
untrained encoders with calibrated BatchNorm statistics, keeps moving-average BatchNorm stable in its variance and
trains no batch below the smallest that a method is defined for.
"""
