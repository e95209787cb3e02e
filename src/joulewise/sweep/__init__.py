"""Runs over a space of settings, repeated, in random order, against a reference."""
