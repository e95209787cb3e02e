"""The boards that a sweep sets: those of this machine, or a simulated one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from joulewise.data.sweeps import CONTROL_AXES, MEM_CLOCK, SM_CLOCK
from joulewise.errors import DeviceError, UsageError
from joulewise.sweep.spec import SweepSpec, names_in

_AMPERE: Final = 7  # NVML's number of the first generation that can lock its memory clock


@dataclass(frozen=True)
class TargetBoard:
    """A GPU or CPU package, and the range of its controls.

    Percentages are of ``default_w``: a GPU's default limit, a package's present one. It is None
    where the power limit cannot be set; the clocks are empty where none can be locked.
    """

    key: str
    uid: str
    name: str
    lowest_w: float = 0.0
    default_w: float | None = None
    highest_w: float = 0.0
    sm_clocks_mhz: tuple[float, ...] = ()
    mem_clocks_mhz: tuple[float, ...] = ()

    @property
    def is_gpu(self) -> bool:
        return self.key.startswith("gpu")

    def clocks_mhz(self, control: str) -> tuple[float, ...]:
        """The values that a clock can be locked at; empty for any control that is no clock."""
        clocks = {SM_CLOCK: self.sm_clocks_mhz, MEM_CLOCK: self.mem_clocks_mhz}
        return clocks.get(control, ())

    @property
    def limits_w(self) -> tuple[float, float, float] | None:
        """The lowest, default and highest power limit; None where it cannot be set."""
        return None if self.default_w is None else (self.lowest_w, self.default_w, self.highest_w)

    @property
    def full_w(self) -> tuple[float, float]:
        """The range of ``full``; a package's ends at its default, its registers go far beyond."""
        return self.lowest_w, self.highest_w if self.is_gpu else self.default_w or self.highest_w


def boards(spec: SweepSpec, environ: Mapping[str, str]) -> tuple[TargetBoard, ...]:
    """The boards of a sweep; none where there are none and it sets no control."""
    if spec.simulated:
        return simulated(spec.simulated.gpu)
    # Variables that name GPUs count as well, unless they differ between settings.
    given = {name: text for name, text in spec.environ.items() if not names_in(text)}
    try:
        return find_boards(spec.gpus, {**environ, **given})
    except DeviceError:
        if spec.gpus or any(name in CONTROL_AXES for name in spec.axes):
            raise
        return ()


def find_boards(numbers: Sequence[int], environ: Mapping[str, str]) -> tuple[TargetBoard, ...]:
    """GPUs by their numbers, or those that a command would see, and all CPU packages."""
    from joulewise.session.gpu_discovery import discover_settable, select_gpus

    found = discover_settable(environ)
    any_visible = any(gpu.visible for gpu in found.gpus)
    gpus = select_gpus(found.gpus, numbers) if numbers or any_visible else []
    return (
        *(
            TargetBoard(
                gpu.key,
                gpu.uid,
                gpu.name,
                gpu.lowest_w,
                gpu.default_w,
                gpu.highest_w,
                gpu.sm_clocks_mhz,
                gpu.mem_clocks_mhz,
            )
            for gpu in gpus
        ),
        *(
            TargetBoard(cpu.key, cpu.uid, cpu.name, cpu.lowest_w, cpu.now_w, cpu.highest_w)
            for cpu in found.packages
        ),
    )


def simulated(name: str) -> tuple[TargetBoard, ...]:
    """The board of a simulated GPU, as a driver would describe it."""
    from joulewise.simulate.boards import load_board

    board = load_board(name)
    clocks, limits = board.clocks, board.limits
    steps = int((clocks.sm_max_mhz - clocks.sm_min_mhz) / clocks.sm_step_mhz + 1e-6)
    # Whole MHz, counted down from the highest, as a driver lists them.
    sm = (int(clocks.sm_max_mhz - k * clocks.sm_step_mhz) for k in range(steps, -1, -1))
    memory = sorted(clocks.memory_mhz) if board.architecture >= _AMPERE else ()
    return (
        TargetBoard(
            "gpu0",
            f"simulated-{name}",
            board.name,
            limits.minimum_w,
            limits.default_w,
            limits.maximum_w,
            tuple(map(float, sm)),
            tuple(memory),
        ),
    )


def require_alike(
    boards: Sequence[TargetBoard], label: str, get_range: Callable[[TargetBoard], object]
) -> TargetBoard:
    """Return the first board; an error where another has a different range of a control."""
    first = boards[0]
    other = next((board for board in boards if get_range(board) != get_range(first)), None)
    if other is not None:
        raise UsageError(
            f"{first.key} ({first.name}) and {other.key} ({other.name}) take different values "
            f"of the {label}",
            f"sweep one kind at a time: --gpu {first.key.removeprefix('gpu')}",
        )
    return first
