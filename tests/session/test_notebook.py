"""A measurement in a notebook: from cell to cell, with a real kernel."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from tests.helpers.processes import DEADLINE_S, eventually, gone
from tests.helpers.run_processes import environment


class Notebook:
    def __init__(self, manager, client):
        self._manager = manager
        self._client = client

    def cell(self, code, *, interrupt_when=None):
        """What a cell printed and showed, and the name of the error that ended it."""
        shown = []

        def hear(message):
            content = message["content"]
            if message["msg_type"] == "stream":
                shown.append(content["text"])
                if interrupt_when and interrupt_when in content["text"]:
                    self._manager.interrupt_kernel()
            elif message["msg_type"] in {"execute_result", "display_data"}:
                shown.append(content["data"].get("text/html") or content["data"]["text/plain"])

        reply = self._client.execute_interactive(code, timeout=DEADLINE_S, output_hook=hear)
        return "".join(shown), reply["content"].get("ename")

    def kill(self):
        self._manager.shutdown_kernel(now=True)


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    with kernel(tmp_path) as (manager, client):
        yield Notebook(manager, client)


@contextmanager
def kernel(folder):
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=folder, env=environment(JOULEWISE_STORE=str(folder / "store")))
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(DEADLINE_S)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def recorded(folder):
    (path,) = Path(folder, "store").iterdir()
    return json.loads((path / "run.json").read_text())


def test_from_cell_to_cell(notebook, tmp_path):
    assert notebook.cell("import joulewise, time; m = joulewise.measure()") == ("", None)
    shown, _ = notebook.cell("m.start()")
    assert "recording" in shown
    assert notebook.cell("with joulewise.span('cell', 1): time.sleep(0.2)") == ("", None)
    loop = (
        "with joulewise.span('interrupted'):\n    print('loop', flush=True)\n    time.sleep(1000)"
    )
    assert notebook.cell(loop, interrupt_when="loop") == ("loop\n", "KeyboardInterrupt")
    table, _ = notebook.cell("m.stop()")
    assert "<table>" in table
    names, _ = notebook.cell("print([(span.name, span.index) for span in m.spans])")
    assert names == "[('cell', 1), ('interrupted', None)]\n"
    assert recorded(tmp_path)["state"] == "complete"
    assert gone(recorded(tmp_path)["recorder"]["pid"])


def test_a_kernel_that_is_killed_leaves_no_process(notebook, tmp_path):
    notebook.cell("import joulewise; m = joulewise.measure().start()")
    recorder = recorded(tmp_path)["recorder"]["pid"]
    assert not gone(recorder)
    notebook.kill()
    eventually(lambda: gone(recorder))
    assert recorded(tmp_path)["state"] == "stopped"
