"""Shared by all tests: pictures without a window, properties that are tried the same way each time."""

import matplotlib
from hypothesis import settings

matplotlib.use("Agg")

settings.register_profile("course", deadline=None, derandomize=True)  # no clock and no luck decides a test
settings.load_profile("course")
