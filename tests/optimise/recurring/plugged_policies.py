"""Policies as plug-ins of an installed package, for `joulewise job run` in a process of its own."""

import os

# In turn: the default first, then the others, ascending; each again after the last. What crashed is
# left out. BUDGET is what a try may cost.
CODE = """
import math
import os


class InTurn:
    def __init__(self, state):
        self._state = state

    def ask(self):
        values = [v for v in self._state["order"] if v not in self._state["crashed"]]
        value = values[self._state["asked"] % len(values)]
        self._state["asked"] += 1
        return value, float(os.environ.get("BUDGET", "inf"))

    def start(self, batch_size):
        pass

    def tell(self, batch_size, *, reached, epochs, cost, epoch_cost):
        self._state["told"].append([batch_size, reached, epochs, cost, epoch_cost])

    def crash(self, batch_size):
        larger = [v for v in self._state["order"] if v >= batch_size]
        self._state["crashed"] = sorted({*self._state["crashed"], *larger})

    def cancel(self, batch_size):
        self._state["cancelled"].append(batch_size)

    def state(self):
        return self._state

    def beliefs(self):
        return ()


class Factory:
    state_version = 1

    def __call__(self, *, batch_sizes, default, **_):
        order = [default, *(v for v in batch_sizes if v != default)]
        return InTurn(
            {"order": order, "asked": 0, "told": [], "crashed": [], "cancelled": []}
        )

    def restore(self, state, version):
        return InTurn(dict(state))


class Failing(InTurn):
    def ask(self):
        raise RuntimeError("no idea")


class FailingFactory(Factory):
    def __call__(self, **given):
        return Failing(super().__call__(**given).state())

    def restore(self, state, version):
        return Failing(dict(state))


# It raises in the method that BROKEN names; `exit` would end the interpreter.
class Broken(InTurn):
    def ask(self):
        if os.environ["BROKEN"] == "exit":
            raise SystemExit(7)
        broken("ask")
        return super().ask()

    def tell(self, *values, **more):
        broken("tell")
        super().tell(*values, **more)

    def state(self):
        broken("state")
        return {"set": {1}} if os.environ["BROKEN"] == "json" else super().state()

    def beliefs(self):
        broken("beliefs")
        return [{"batch_size": 8}] if os.environ["BROKEN"] == "type" else ()


class BrokenFactory(Factory):
    @property
    def state_version(self):
        return "one" if os.environ["BROKEN"] == "version" else 1

    def __call__(self, **given):
        broken("new")
        return Broken(super().__call__(**given).state())

    def restore(self, state, version):
        broken("restore")
        return Broken(dict(state))


def broken(method):
    if os.environ["BROKEN"] == method:
        raise RuntimeError("out of\\nideas")


breaking = BrokenFactory()
in_turn = Factory()
failing = FailingFactory()
"""


def plugged_environ(folder, **more):
    """An environment in which the policies ``in-turn`` and ``failing`` are installed.

    A third one, ``gone``, cannot be loaded.
    """
    info = folder / "in_turn-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "in_turn_policies.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: in-turn\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[joulewise.policies]\n"
        "in-turn = in_turn_policies:in_turn\nfailing = in_turn_policies:failing\n"
        "breaking = in_turn_policies:breaking\n"
        "gone = in_turn_policies:no_longer_there\n"
    )
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}
