"""Sampling devices into a run directory, and reading one back."""
