"""The pages of the site: which address shows what, and runs in progress."""

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
from joulewise.serve.listing import COLUMNS, ListQuery, list_store
from joulewise.serve.lookup import NotThereError, Reports, run_folder, stamp
from joulewise.serve.server import HttpResponse, html_response, json_response
from joulewise.store.runs import RECORDING

Query = Mapping[str, list[str]]
"""The decoded query of an address."""

_FRESH_S: Final = 0.5  # how long a poll is reused; pages poll every second, and there may be many
_FORGOTTEN_S: Final = 60.0  # without a request, after which a run is not followed any more
_CONTENT_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_REPORT_FILES: Final = {"page.css", "theme.js"}  # shared with reports
_OWN_FILES: Final = {"view.css", "view.js"}
_MAX_FIELDS: Final = 200  # of a query (chosen): a comparison names up to 200 runs
_NUMBER_DIGITS: Final = 12  # of a time in seconds in a query


class LiveRuns:
    """Follows runs in progress while a page shows them, with two polls a second at most."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._watched: dict[Path, tuple[RunWatch, RunNow, float]] = {}

    def poll(self, run: Path) -> RunNow:
        """The state of a run, at most half a second old."""
        with self._lock:
            now_s = self._clock_s()
            self._watched = {
                path: entry
                for path, entry in self._watched.items()
                if now_s - entry[2] < _FORGOTTEN_S and path.is_dir()
            }
            watch, now, polled_s = self._watched.get(run, (RunWatch(run), None, -_FRESH_S))
            if now is None or now_s - polled_s >= _FRESH_S:
                now, polled_s = watch.look(), now_s
            self._watched[run] = watch, now, polled_s
            return now


def live_json(now: RunNow, after_s: int) -> dict[str, Any]:
    """Texts by the ids of their elements, and power by second from ``after_s`` on."""
    return {
        "state": now.state,
        "is_live": now.state == RECORDING,
        "window_s": WINDOW_S,
        "last_s": max(
            (device.course[-1].at_s for device in now.devices if device.course), default=0
        ),
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
    """Texts by the ids of their elements, for the page and for its script."""
    texts_by_id = {"verdict": standing(now), "foretold": "\n".join(foretold(now))}
    for number, device in enumerate(now.devices):
        spent_j = now.energies.get(device.key)
        texts_by_id |= {
            f"power-{number}": watts(device.power_w),
            f"limit-{number}": watts(device.limit_w),
            f"energy-{number}": energy(spent_j) if spent_j else "-",
            f"source-{number}": spent_j.source.value if spent_j else "-",
        }
        names = ("load", "clock", "temperature")
        texts_by_id |= {
            f"{name}-{number}": cell for name, cell in zip(names, cells(device), strict=True)
        }
    return texts_by_id


class Site:
    """Answers all addresses below the one with the secret."""

    def __init__(self, store: Path, program: str) -> None:
        self._store = store
        self._live = LiveRuns()
        self._reports = Reports(store, program)

    def answer(self, target: str) -> HttpResponse:
        """The response to an address, which is encoded and may have a query."""
        path, _, encoded_query = target.partition("?")
        root = "/".join([".."] * path.count("/")) or "."
        try:
            query = parse_qs(encoded_query, max_num_fields=_MAX_FIELDS)
            return self._answer([unquote(part) for part in path.split("/")], query)
        except ValueError:
            return _problem(root, HTTPStatus.BAD_REQUEST, "the address has too many fields")
        except NotThereError as error:
            return _problem(root, HTTPStatus.NOT_FOUND, error.message, error.hint)
        except UsageError as error:
            return _problem(root, HTTPStatus.BAD_REQUEST, error.message, error.hint)
        except JoulewiseError as error:
            return _problem(root, HTTPStatus.INTERNAL_SERVER_ERROR, error.message, error.hint)
        except FileNotFoundError:
            message = "it was deleted at this moment"
            return _problem(root, HTTPStatus.NOT_FOUND, message, "go back to the list")
        except OSError as error:
            message = f"{error.filename or self._store} cannot be read: {error.strerror or error}"
            hint = "check the disk, and that the user who runs joulewise view may read it"
            return _problem(root, HTTPStatus.INTERNAL_SERVER_ERROR, message, hint)

    def address(self, run: str) -> str:
        """The address of a run that is named as on the command line."""
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
            case ["static", name] if name in _REPORT_FILES | _OWN_FILES:
                return _static(name)
            case ["run", name]:
                return self._reports.run(name)
            case ["sweep", name]:
                return self._reports.sweep(name)
            case ["live", name]:
                return self._live_page(name)
            case ["now", name]:
                return self._now(name, query.get("after", [""])[0])
        raise NotThereError("there is no such page", "go back to the list")

    def _list(self, query: Query) -> HttpResponse:
        listing = list_store(self._store, ListQuery.parse(query))
        return _page("list.html", root=".", listing=listing, columns=COLUMNS, store=self._store)

    def _live_page(self, name: str) -> HttpResponse:
        now = self._poll(name)
        return _page(
            "live.html",
            root="..",
            now=now,
            folder=name,
            texts=texts(now),
            is_live=now.state == RECORDING,
        )

    def _now(self, name: str, after: str) -> HttpResponse:
        """The state of a run as JSON, with its power from the second ``after`` on."""
        is_number = after.removeprefix("-").isdecimal() and len(after) < _NUMBER_DIGITS
        return json_response(live_json(self._poll(name), int(after) if is_number else -WINDOW_S))

    def _poll(self, name: str) -> RunNow:
        folder = run_folder(self._store, name)
        stamp(folder)  # raises where the folder has a link in it
        return self._live.poll(folder)


def _problem(root: str, status: HTTPStatus, message: str, hint: str = "") -> HttpResponse:
    return _page("problem.html", status, root=root, message=message, hint=hint)


def _page(template: str, status: HTTPStatus = HTTPStatus.OK, **values: Any) -> HttpResponse:
    return html_response(environment(__package__).get_template(template).render(values), status)


def _static(name: str) -> HttpResponse:
    text = source(name, __package__) if name in _OWN_FILES else source(name)
    return HttpResponse(text.encode(), _CONTENT_TYPES[name.rpartition(".")[2]])
