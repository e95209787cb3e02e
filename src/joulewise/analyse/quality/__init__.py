"""What to warn of in a result.

- ``run``: the recording, the clock, the spans
- ``devices``: one device: gaps, stuck sensors, limits that do not bind, waiting
"""
