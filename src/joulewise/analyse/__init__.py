"""Joules of any span, with their error."""
