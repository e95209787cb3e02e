"""Courses over time, made small enough to be drawn: joules never come from here."""
