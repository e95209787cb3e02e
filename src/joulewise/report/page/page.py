"""What a page says, in the order in which it is read; ``render`` makes it HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from joulewise.report.charts.chart import Chart
from joulewise.report.tables import Table


@dataclass(frozen=True)
class Notice:
    """Something to beware of, and what to do about it."""

    message: str
    hint: str = ""


@dataclass(frozen=True)
class Section:
    """A heading, sentences, tables, figures; what is empty is left out.

    ``folded`` is what opens only on request, such as every single setting. ``written`` says whether
    ``--tables`` writes its tables: those of what was found, not of how well it was measured.
    """

    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    folded: bool = False
    written: bool = True


@dataclass(frozen=True)
class Page:
    """``verdict`` answers the question in one sentence.

    ``commands`` are pairs of what to type and what it does, the one that repeats this first;
    ``environment`` are facts by name; ``data`` is the result as ``--json`` writes it.
    """

    title: str
    verdict: str
    facts: tuple[str, ...]
    notices: tuple[Notice, ...]
    sections: tuple[Section, ...]
    environment: Mapping[str, str]
    commands: tuple[tuple[str, str], ...]
    data: Mapping[str, Any]
