"""The pages: which address shows what.

Runs in progress, followed for as long as somebody looks at them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote

from joulewise.errors import JoulewiseError, UsageError
from joulewise.formatting import energy, watts
from joulewise.report.html.render import environment, source
from joulewise.report.resolve import resolve_one_run
from joulewise.report.views.live import WINDOW_S, RunNow, RunWatch, cells, foretold, standing
from joulewise.serve.listing import COLUMNS, Wish, list_store
from joulewise.serve.lookup import NotThereError, Reports, run_folder, stamp
from joulewise.serve.server import HttpResponse, html
from joulewise.serve.server import as_json as json_response
from joulewise.store.runs import RECORDING

_FRESH_S: Final = 0.5
_FORGOTTEN_S: Final = 60.0


class LiveRuns:
    """However many pages show a run, it is looked at twice a second at most."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._watched: dict[Path, tuple[RunWatch, RunNow, float]] = {}

    def look(self, run: Path) -> RunNow:
        with self._lock:
            now_s = self._clock_s()
            self._watched = {
                path: kept
                for path, kept in self._watched.items()
                if now_s - kept[2] < _FORGOTTEN_S and path.is_dir()
            }
            watch, now, looked_s = self._watched.get(run, (RunWatch(run), None, -_FRESH_S))
            if now is None or now_s - looked_s >= _FRESH_S:
                now, looked_s = watch.look(), now_s
            self._watched[run] = watch, now, looked_s
            return now


def as_json(now: RunNow, after_s: int) -> dict[str, Any]:
    """Texts by the elements that show them, and the seconds of power from ``after_s`` on."""
    return {
        "state": now.state,
        "is_live": now.state == RECORDING,
        "window_s": WINDOW_S,
        "last_s": last_s(now),
        "text": texts(now),
        "devices": [
            {
                "key": device.key,
                "limit_w": device.limit_w,
                "seconds": [
                    [second.at_s, *(round(value, 1) for value in second[1:])]
                    for second in device.course
                    if second.at_s >= after_s
                ],
            }
            for device in now.devices
        ],
    }


def texts(now: RunNow) -> dict[str, str]:
    """As the page first has it, and as its script then writes it."""
    told = {
        "verdict": standing(now),
        "foretold": "\n".join(foretold(now)),
    }
    for number, device in enumerate(now.devices):
        spent_j = now.energies.get(device.key)
        told |= {
            f"power-{number}": watts(device.power_w),
            f"limit-{number}": watts(device.limit_w),
            f"energy-{number}": energy(spent_j) if spent_j else "-",
            f"source-{number}": spent_j.source.value if spent_j else "-",
        }
        names = ("load", "clock", "temperature")
        told |= {f"{n}-{number}": cell for n, cell in zip(names, cells(device), strict=True)}
    return told


def last_s(now: RunNow) -> int:
    return max((device.course[-1].at_s for device in now.devices if device.course), default=0)


Query = Mapping[str, list[str]]

_KINDS: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_PAGES_OWN: Final = {"page.css", "theme.js"}
_OURS: Final = {"view.css", "view.js"}
_MOST_FIELDS: Final = 200


class Site:
    """Answers any address below the secret one."""

    def __init__(self, store: Path, program: str) -> None:
        self._store = store
        self._live = LiveRuns()
        self._reports = Reports(store, program)
        self._shows = {
            "run": self._run,
            "live": self._live_page,
            "now": self._now,
            "sweep": self._sweep,
        }

    def answer(self, target: str) -> HttpResponse:
        """``target`` is as the request has it: encoded, with its query."""
        path, _, told = target.partition("?")
        root = "/".join([".."] * path.count("/")) or "."
        try:
            query = parse_qs(told, max_num_fields=_MOST_FIELDS)
            return self._answer([unquote(part) for part in path.split("/")], query)
        except ValueError:
            return _problem(root, HTTPStatus.BAD_REQUEST, "the address asks for too much at once")
        except NotThereError as error:
            return _problem(root, HTTPStatus.NOT_FOUND, error.message, error.hint)
        except UsageError as error:
            return _problem(root, HTTPStatus.BAD_REQUEST, error.message, error.hint)
        except JoulewiseError as error:
            return _problem(root, HTTPStatus.INTERNAL_SERVER_ERROR, error.message, error.hint)
        except FileNotFoundError:
            said = "it was deleted at this moment"
            return _problem(root, HTTPStatus.NOT_FOUND, said, "go back to the list")
        except OSError as error:
            said = f"{error.filename or self._store} cannot be read: {error.strerror or error}"
            hint = "see that the disk answers, and that whoever runs joulewise view may read it"
            return _problem(root, HTTPStatus.INTERNAL_SERVER_ERROR, said, hint)

    def address(self, run: str) -> str:
        """Where a run is shown, as it is named on the command line."""
        folder = resolve_one_run(self._store, run).newest
        if folder.parent.resolve() != self._store.resolve():
            raise UsageError(f"{run} is not in {self._store}", "name its store with --store DIR")
        is_live = RunWatch(folder).look().state == RECORDING
        return f"{'live' if is_live else 'run'}/{quote(folder.name)}"

    def _answer(self, parts: Sequence[str], query: Query) -> HttpResponse:
        match parts:
            case [""]:
                return self._list(query)
            case ["compare"]:
                return self._reports.compare(query.get("a", []), query.get("b", []))
            case ["static", name] if name in _PAGES_OWN | _OURS:
                return _static(name)
            case [kind, name] if kind in self._shows:
                return self._shows[kind](name, query)
        raise NotThereError("there is no such page", "go back to the list")

    def _list(self, query: Query) -> HttpResponse:
        listing = list_store(self._store, Wish.of(query))
        return _page("list.html", root=".", listing=listing, columns=COLUMNS, store=self._store)

    def _run(self, name: str, _: Query) -> HttpResponse:
        return self._reports.run(name)

    def _sweep(self, name: str, _: Query) -> HttpResponse:
        return self._reports.sweep(name)

    def _live_page(self, name: str, _: Query) -> HttpResponse:
        now = self._look(name)
        return _page(
            "live.html",
            root="..",
            now=now,
            folder=name,
            texts=texts(now),
            is_live=now.state == RECORDING,
        )

    def _now(self, name: str, query: Query) -> HttpResponse:
        after = query.get("after", [""])[0]
        is_number = after.removeprefix("-").isdecimal() and len(after) < 12
        return json_response(as_json(self._look(name), int(after) if is_number else -WINDOW_S))

    def _look(self, name: str) -> RunNow:
        folder = run_folder(self._store, name)
        stamp(folder)
        return self._live.look(folder)


def _problem(root: str, status: HTTPStatus, message: str, hint: str = "") -> HttpResponse:
    return _page("problem.html", status, root=root, message=message, hint=hint)


def _page(template: str, status: HTTPStatus = HTTPStatus.OK, **told: Any) -> HttpResponse:
    return html(environment(__package__).get_template(template).render(told), status)


def _static(name: str) -> HttpResponse:
    text = source(name, __package__) if name in _OURS else source(name)
    return HttpResponse(text.encode(), _KINDS[name.rpartition(".")[2]])
