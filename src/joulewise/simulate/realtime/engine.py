"""The event loop that runs simulated GPUs in real time and serves their clients.

Nothing happens between events: power is constant from piece to piece, and NVML clients read the
pieces from shared memory. The engine waits for a socket, the clock and the command.

The protocol of the socket is one line for each request. An NVML client sends ``client`` and stays
connected for as long as it is one; after it has set a control it sends ``changed GPU``. A training
program sends ``gpus`` for their identities, ``attach GPU`` and then, as often as it likes, ``step
WORKLOAD BATCH_SIZE COUNT``. Answers are ``ok``, ``gpus JSON``, ``done START_NS END_NS`` once the
steps are over, or ``error MESSAGE<tab>HINT``. A client that sends anything else is disconnected.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter

from joulewise.errors import JoulewiseError
from joulewise.process.child import Child
from joulewise.process.linux import Timer
from joulewise.simulate.model import BoardUnit, Workload
from joulewise.simulate.nvml import identity
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory
from joulewise.simulate.physics.integrate import run_factors
from joulewise.simulate.realtime.gpu import NEVER_DUE_NS, HostChip, Job, MachineLoad, RealtimeGpu
from joulewise.simulate.realtime.gpu import PERIOD_NS as HOST_PERIOD_NS
from joulewise.simulate.realtime.truth import Accounting, Truth
from joulewise.simulate.workloads import StepSequence, load_workload, repeat_training
from joulewise.units import NS_PER_S

# All chosen. A line holds a workload's name and three numbers; a number has no more digits than
# anybody needs. Connections beyond MAX_PEERS wait: doubled, a machine whose limit of descriptors is
# the usual 1024 still has some left. _OTHER_DESCRIPTORS are kept for what is not a connection.
MAX_LINE_B = 256
MAX_PEERS = 500
_MAX_DIGITS = 12
_OTHER_DESCRIPTORS = 32

Handler = Callable[["Peer", list[str]], None]


class ProtocolError(Exception):
    """The peer does not keep to the protocol."""


def parse_count(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise ProtocolError("not a count")
    return int(text)


class Peer:
    """One connection, and the process at its other end."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pid = int(struct.unpack("iII", credentials)[0])
        self._received = b""

    def lines(self) -> list[str]:
        """The complete lines that have arrived; OSError where the peer has disconnected."""
        chunk = self.connection.recv(4096)
        if not chunk:
            raise ConnectionResetError
        *lines, self._received = (self._received + chunk).split(b"\n")
        if max(map(len, (*lines, self._received))) > MAX_LINE_B:
            raise ProtocolError("line too long")
        return [line.decode("ascii", "replace") for line in lines]

    def answer(self, text: str) -> None:
        """Send a line. A peer that does not read is disconnected, which the server then notices."""
        try:
            self.connection.sendall(f"{text}\n".encode())
        except OSError:
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


class SimulationServer:
    """Listens at an address; calls ``handle`` for every line and ``leave`` for a lost peer."""

    def __init__(
        self,
        address: str,
        selector: selectors.BaseSelector,
        handle: Handler,
        leave: Callable[[Peer], None],
    ) -> None:
        self._selector = selector
        self._handle = handle
        self._leave = leave
        self._peers: set[Peer] = set()
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_peers = max(1, min(MAX_PEERS, descriptors - _OTHER_DESCRIPTORS))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(address)
        self._listener.listen(64)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        self._listener.close()
        for peer in self._peers:
            peer.connection.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # the peer has gone already
            return
        peer = Peer(connection)
        self._peers.add(peer)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(peer))
        if len(self._peers) == self._max_peers:
            self._selector.unregister(self._listener)

    def _read(self, peer: Peer) -> None:
        try:
            lines = peer.lines()
        except BlockingIOError:
            return
        except (OSError, ProtocolError):
            self._disconnect(peer)
            return
        try:
            for line in lines:
                self._handle(peer, line.split())
        except ProtocolError:
            self._disconnect(peer)

    def _disconnect(self, peer: Peer) -> None:
        if len(self._peers) == self._max_peers:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._peers.discard(peer)
        self._selector.unregister(peer.connection)
        peer.connection.close()
        self._leave(peer)


# How often the truth is written, old pieces are dropped, and controls are read again. Chosen; with
# twice as much, a control that a client set before it was killed takes effect later by as much.
_FLUSH_PERIOD_NS = NS_PER_S // 2
_RUNS_PER_UNIT = 1 << 20  # so that no two runs of any units have one seed
_DUE_NS = attrgetter("due_ns")
# What the counters have counted when the simulation begins. A driver is loaded long before anybody
# measures, so that a reading that is old by up to 10 s (fault `stale`) is of a counter that ran.
# Chosen: what a V100 takes in seven idle hours; any value above 10 s at full power does.
_COUNTED_BEFORE_J = 1e6
_factors = lru_cache(maxsize=1024)(run_factors)


@dataclass(eq=False)
class _User:
    """A process on a GPU: a training program, or the load that ``--workload`` keeps running."""

    pid: int
    gpu: int
    run: int
    memory_b: int = 0
    busy: bool = False


class Engine:
    """Runs the GPUs, answers clients, and writes the truth."""

    def __init__(
        self,
        units: Sequence[BoardUnit],
        busy: Sequence[Workload | None],
        shared: SharedGpuMemory,
        truth: Truth | None,
        *,
        start_ns: int,
        name: str,
    ) -> None:
        self._shared = shared
        self._truth = truth
        self._gpus = [
            RealtimeGpu(unit, shared.controls(gpu), start_ns, partial(shared.publish, gpu))
            for gpu, unit in enumerate(units)
        ]
        for gpu in range(len(units)):
            shared.count_from(gpu, -_COUNTED_BEFORE_J)
        self._hosts = [
            HostChip(unit.board.module, start_ns, partial(shared.publish_host, gpu))
            if unit.board.module
            else None
            for gpu, unit in enumerate(units)
        ]
        self._load = MachineLoad() if any(self._hosts) else None
        self._host_due_ns = start_ns + HOST_PERIOD_NS if self._load else NEVER_DUE_NS
        self._accounting = Accounting(shared, self._gpus)
        self._nvml_clients: set[Peer] = set()
        self._users: dict[Peer | int, _User] = {}
        self._runs = 0
        self._flush_ns = start_ns
        self._now_ns = start_ns
        self._is_over = False
        self._workload = lru_cache(maxsize=256)(self._load_workload)
        self._handlers: dict[tuple[str, int] | None, Callable[..., None]] = {
            ("client", 1): self._on_client,
            ("changed", 2): self._on_changed,
            ("gpus", 1): self._on_gpus,
            ("attach", 2): self._on_attach,
            ("step", 4): self._on_step,
        }
        if truth:
            truth.start([unit.gain for unit in units], start_ns, self._hosts)
        for gpu, workload in enumerate(busy):
            if workload:
                self._attach(gpu, gpu, os.getpid())
                parts = repeat_training(workload)
                self._submit(gpu, workload, next(parts), parts)
        self._timer = Timer()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._timer, selectors.EVENT_READ, lambda: None)
        self._server = SimulationServer(f"\0{name}", self._selector, self._on_line, self._on_leave)

    def run(self, child: Child) -> None:
        """Run the GPUs until the command has ended."""
        self._selector.register(
            child.signals, selectors.EVENT_READ, partial(self._on_signal, child)
        )
        while not self._is_over:
            self._timer.set(self._advance())
            for key, _ in self._selector.select():
                key.data()
        self._advance()
        if self._truth:
            self._truth.write([gpu.take_timeline() for gpu in self._gpus], self._now_ns, last=True)

    def close(self) -> None:
        self._server.close()
        self._selector.close()
        self._timer.close()

    def _advance(self) -> int:
        """Do everything that is due by now, in order of time; when the next thing is due (ns)."""
        self._now_ns = time.monotonic_ns()
        while True:
            gpu = min(self._gpus, key=_DUE_NS)
            if gpu.due_ns <= min(self._flush_ns, self._now_ns):
                done = gpu.on_due()
                if done:
                    self._users[done.owner].busy = False
                    done.owner.answer(f"done {done.start_ns} {done.end_ns}")
            elif self._flush_ns <= self._now_ns:
                self._flush()
            elif self._host_due_ns <= self._now_ns:
                self._load_hosts()
            else:
                return min(gpu.due_ns, self._flush_ns, self._host_due_ns)

    def _load_hosts(self) -> None:
        load = self._load.load() if self._load else 0.0
        for host in self._hosts:
            if host is not None:
                host.set_load(load, self._now_ns)
        self._host_due_ns = self._now_ns + HOST_PERIOD_NS

    def _flush(self) -> None:
        timelines = [gpu.take_timeline() for gpu in self._gpus]
        if self._truth:
            self._truth.write(timelines, self._flush_ns)
        for host in self._hosts:
            if host is not None:
                host.forget(self._flush_ns)
        for index, gpu in enumerate(self._gpus):
            # Again, since a client may die after it has set a control and before it says so.
            gpu.set_controls(self._shared.controls(index), self._flush_ns)
            self._accounting.apply_requests(index, self._flush_ns)
            self._accounting.refresh(index, self._flush_ns)
        self._flush_ns += _FLUSH_PERIOD_NS

    def _on_signal(self, child: Child) -> None:
        self._is_over = child.ended()

    def _on_line(self, peer: Peer, words: list[str]) -> None:
        self._advance()
        request = (words[0], len(words)) if words else None
        if request not in self._handlers:
            raise ProtocolError("not a line of the protocol")
        try:
            self._handlers[request](peer, *words[1:])
        except JoulewiseError as error:
            peer.answer(f"error {error.message}\t{error.hint}")

    def _on_client(self, peer: Peer) -> None:
        self._nvml_clients.add(peer)
        peer.answer("ok")

    def _on_changed(self, peer: Peer, gpu: str) -> None:
        index = self._index(gpu)
        self._gpus[index].set_controls(self._shared.controls(index), self._now_ns)
        self._accounting.apply_requests(index, self._now_ns)
        peer.answer("ok")

    def _on_gpus(self, peer: Peer) -> None:
        units = [gpu.unit for gpu in self._gpus]
        peer.answer(f"gpus {json.dumps([_identity(unit, i) for i, unit in enumerate(units)])}")

    def _on_attach(self, peer: Peer, gpu: str) -> None:
        if peer in self._users:
            raise ProtocolError("attached already")
        self._attach(peer, self._index(gpu), peer.pid)
        peer.answer("ok")

    def _on_step(self, peer: Peer, name: str, batch_size: str, steps: str) -> None:
        user, count = self._users.get(peer), parse_count(steps)
        if user is None or user.busy or count == 0:
            raise ProtocolError("not attached, still busy, or no steps to do")
        workload = self._workload(name, user.gpu, parse_count(batch_size))
        self._submit(peer, workload, StepSequence("step", workload.step, count))
        user.busy = True

    def _on_leave(self, peer: Peer) -> None:
        self._advance()
        user = self._users.pop(peer, None)
        if user:
            self._gpus[user.gpu].withdraw(peer, self._now_ns)
            self._accounting.end(user.gpu, peer, user.memory_b, self._now_ns)
            self._gpus[user.gpu].attach(-1, self._now_ns)
            self._publish_processes(user.gpu)
        elif peer not in self._nvml_clients:
            return
        self._nvml_clients.discard(peer)
        for index, gpu in enumerate(self._gpus):
            if not (self._nvml_clients or gpu.contexts or self._shared.persistence(index)):
                self._shared.reset(index, self._counted_j(index))
                gpu.set_controls(self._shared.controls(index), self._now_ns)
                self._accounting.apply_requests(index, self._now_ns)

    def _counted_j(self, gpu: int) -> float:
        """What the GPU's counter covers, up to now: the energy of the GPU, or of its module."""
        host, module = self._hosts[gpu], self._gpus[gpu].unit.board.module
        is_module = module is not None and module.counter_is_module
        host_j = float(host.energy_at([self._now_ns])[0]) if host and is_module else 0.0
        return self._gpus[gpu].energy_j(self._now_ns) + host_j

    def _attach(self, key: Peer | int, gpu: int, pid: int) -> None:
        self._runs += 1
        self._users[key] = _User(pid, gpu, self._runs)
        self._gpus[gpu].attach(+1, self._now_ns)
        self._accounting.begin(gpu, key, pid, self._now_ns)
        self._publish_processes(gpu)

    def _submit(
        self,
        key: Peer | int,
        workload: Workload,
        part: StepSequence,
        later: Iterator[StepSequence] | None = None,
    ) -> None:
        user = self._users[key]
        gpu = self._gpus[user.gpu]
        if workload.step.memory_b > user.memory_b:
            user.memory_b = workload.step.memory_b
            self._accounting.note_memory(user.gpu, key, user.memory_b)
            self._publish_processes(user.gpu)
        factors = _factors(gpu.unit.seed * _RUNS_PER_UNIT + user.run, workload.run_noise)
        gpu.submit(Job(key, part.load, part.steps, *factors, later), self._now_ns)

    def _load_workload(self, name: str, gpu: int, batch_size: int) -> Workload:
        return load_workload(name, self._gpus[gpu].unit.board, batch_size or None)

    def _index(self, text: str) -> int:
        index = parse_count(text)
        if index >= len(self._gpus):
            raise ProtocolError("no such GPU")
        return index

    def _publish_processes(self, gpu: int) -> None:
        users = [user for user in self._users.values() if user.gpu == gpu]
        self._shared.set_processes(gpu, [(user.pid, user.memory_b) for user in users])


def _identity(unit: BoardUnit, index: int) -> dict[str, object]:
    fields = identity.unit_fields(unit, index)
    return {
        "index": index,
        "uuid": fields["uuid"].decode(),
        "model": unit.board.name,
        "bus_id": fields["bus_id"].decode(),
        "speed": unit.board.cores * unit.board.clocks.sm_max_mhz,
    }
