"""Conformance suites: whoever writes a device subclasses one test case."""
