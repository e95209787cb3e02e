"""Figures in two steps: what to show (tables), and how it is drawn (Vega-Lite, by Altair)."""
