"""The pages: which address shows what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote

from joulewise.errors import JoulewiseError, UsageError
from joulewise.record.store import RECORDING, find
from joulewise.report.page.render import environment, source
from joulewise.report.serve.listing import COLUMNS, Wish, list_store
from joulewise.report.serve.live import LiveRuns, as_json, texts
from joulewise.report.serve.lookup import NotThereError, run_folder, stamp
from joulewise.report.serve.reports import Reports
from joulewise.report.serve.response import Response, html
from joulewise.report.serve.response import as_json as json_response
from joulewise.report.watch import RunNow, RunWatch
from joulewise.report.watch_device import WINDOW_S

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

    def answer(self, target: str) -> Response:
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
        folder = find(self._store, run)
        if folder.parent.resolve() != self._store.resolve():
            raise UsageError(f"{run} is not in {self._store}", "name its store with --store DIR")
        is_live = RunWatch(folder).look().state == RECORDING
        return f"{'live' if is_live else 'run'}/{quote(folder.name)}"

    def _answer(self, parts: Sequence[str], query: Query) -> Response:
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

    def _list(self, query: Query) -> Response:
        listing = list_store(self._store, Wish.of(query))
        return _page("list.html", root=".", listing=listing, columns=COLUMNS, store=self._store)

    def _run(self, name: str, _: Query) -> Response:
        return self._reports.run(name)

    def _sweep(self, name: str, _: Query) -> Response:
        return self._reports.sweep(name)

    def _live_page(self, name: str, _: Query) -> Response:
        now = self._look(name)
        return _page(
            "live.html",
            root="..",
            now=now,
            folder=name,
            texts=texts(now),
            is_live=now.state == RECORDING,
        )

    def _now(self, name: str, query: Query) -> Response:
        after = query.get("after", [""])[0]
        is_number = after.removeprefix("-").isdecimal() and len(after) < 12
        return json_response(as_json(self._look(name), int(after) if is_number else -WINDOW_S))

    def _look(self, name: str) -> RunNow:
        folder = run_folder(self._store, name)
        stamp(folder)
        return self._live.look(folder)


def _problem(root: str, status: HTTPStatus, message: str, hint: str = "") -> Response:
    return _page("problem.html", status, root=root, message=message, hint=hint)


def _page(template: str, status: HTTPStatus = HTTPStatus.OK, **told: Any) -> Response:
    return html(environment(__package__).get_template(template).render(told), status)


def _static(name: str) -> Response:
    text = source(name, __package__) if name in _OURS else source(name)
    return Response(text.encode(), _KINDS[name.rpartition(".")[2]])
