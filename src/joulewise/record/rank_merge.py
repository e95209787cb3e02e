"""The ranks of one job as one: an epoch is from the first rank's begin to the last one's end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulewise.record.mark_files import Header, joined

Process = tuple[Header, dict[str, NDArray[Any]]]


def jobs(processes: Sequence[Process]) -> list[list[Process]]:
    """The processes that belong together, by rank.

    A job's key is not always its own (two that use one port, one after the other), so a rank that
    is there already begins the next job.
    """
    alone = [[process] for process in processes if process[0].world_size <= 1]
    open_jobs: dict[tuple[int, int], list[Process]] = {}
    together = []
    ranked = [process for process in processes if process[0].world_size > 1]
    for process in sorted(ranked, key=lambda process: process[0].start_ns):
        header = process[0]
        key = (header.job, header.world_size)
        job = open_jobs.get(key)
        if job is None or any(member.rank == header.rank for member, _ in job):
            job = open_jobs[key] = []
            together.append(job)
        job.append(process)
    for job in together:
        job.sort(key=lambda process: process[0].rank)
    return alone + together


def merged(job: Sequence[Process]) -> dict[str, NDArray[Any]]:
    """One set of spans; of a name and index that repeats, the first goes with the first, and so on.

    What only some ranks did stays as they did it. The process named is the lowest rank's.
    """
    if len(job) == 1:
        return job[0][1]
    member = np.repeat(np.arange(len(job)), [len(spans["name"]) for _, spans in job])
    columns = joined([spans for _, spans in job])
    occurrence = _occurrences(member, columns)
    order = np.lexsort((member, occurrence, columns["index"], columns["name"]))
    keys = (columns["name"][order], columns["index"][order], occurrence[order])
    first = np.flatnonzero(_changes(*keys))
    if not len(first):
        return columns
    ordered = {column: columns.pop(column)[order] for column in list(columns)}
    return {
        "name": ordered["name"][first],
        "index": ordered["index"][first],
        "pid": ordered["pid"][first],
        "total": np.maximum.reduceat(ordered["total"], first),
        "start_ns": np.minimum.reduceat(ordered["start_ns"], first),
        "end_ns": np.maximum.reduceat(ordered["end_ns"], first),
        "closed": np.logical_and.reduceat(ordered["closed"], first),
        "ended": np.logical_and.reduceat(ordered["ended"], first),
    }


def _occurrences(member: NDArray[np.int64], columns: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """How many of the same name and index the same process had before."""
    order = np.lexsort((columns["start_ns"], columns["index"], columns["name"], member))
    new = _changes(member[order], columns["name"][order], columns["index"][order])
    position = np.arange(len(order))
    begins = np.maximum.accumulate(np.where(new, position, 0))
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = position - begins
    return occurrence


def _changes(*keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True where a row differs from the one before."""
    changed = np.ones(len(keys[0]), bool)
    changed[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return changed
