"""Chooses settings of trainings: while one runs, or from one recurrence of a job to the next.

- ``live/``: tuning of a running training
- ``recurring/``: the batch size of a training that comes back
"""
