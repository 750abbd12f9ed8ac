"""The ops, one line each: call one for the numpy truth, or `.on(backend)` for the same function elsewhere."""

import importlib
from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar, cast

from .reference.accept_greedy import accept_greedy as _accept_greedy
from .reference.retrieve import retrieve as _retrieve
from .reference.tree_build import tree_build as _tree_build
from .reference.visibility import visibility as _visibility
from .reference.visibility_intervals import visibility_intervals as _visibility_intervals
from .reference.visibility_packed import visibility_packed as _visibility_packed

__all__ = [
    "BackendUnavailable",
    "Op",
    "accept_greedy",
    "all_ops",
    "retrieve",
    "tree_build",
    "visibility",
    "visibility_intervals",
    "visibility_packed",
]

P = ParamSpec("P")
R = TypeVar("R")

KERNELS = Path(__file__).parent / "kernels"
LIBRARY = {"numba": "numba", "cuda": "cupy"}  # what each fast backend imports
REMEDY = {"numba": "pip install numba", "cuda": "pip install 'kdtree-lab[cuda]'"}


class BackendUnavailable(ImportError):
    """The backend is unknown, has no kernel for this op, or its library is not installed."""


class Op(Generic[P, R]):
    """A function with one meaning and several implementations.

    The truth is the function of this name in `kdtree.reference`; `kdtree/kernels/<backend>/<name>.py` holds the same
    function for a backend, and that file is its only registration.
    """

    def __init__(self, truth: Callable[P, R]) -> None:
        self.truth = truth
        self.name = truth.__name__
        self._found = {"numpy": truth}
        update_wrapper(self, truth)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the numpy truth."""
        return self.truth(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<op {self.name} on {', '.join(self.backends())}>"

    def backends(self) -> tuple[str, ...]:
        """Return the backends that have a file for this op; "numpy", the truth, comes first."""
        return ("numpy", *(backend for backend in LIBRARY if (KERNELS / backend / f"{self.name}.py").is_file()))

    def on(self, backend: str) -> Callable[P, R]:
        """Return this op on a backend, or raise BackendUnavailable; nothing is substituted in silence."""
        if backend not in self._found:
            self._found[backend] = self._find(backend)
        return self._found[backend]

    def _find(self, backend: str) -> Callable[P, R]:
        if backend not in LIBRARY:
            raise BackendUnavailable(f"backend: got {backend!r}, needs one of {', '.join(('numpy', *LIBRARY))}")
        if backend not in self.backends():
            raise BackendUnavailable(f"{self.name} has no {backend} kernel; it runs on {', '.join(self.backends())}")
        try:
            importlib.import_module(LIBRARY[backend])
        except ImportError as error:
            raise BackendUnavailable(f"backend {backend}: {error}; {REMEDY[backend]}") from error
        kernel = importlib.import_module(f"{__package__}.kernels.{backend}.{self.name}")
        return cast(Callable[P, R], getattr(kernel, self.name))


tree_build = Op(_tree_build)
visibility = Op(_visibility)
visibility_packed = Op(_visibility_packed)
visibility_intervals = Op(_visibility_intervals)
retrieve = Op(_retrieve)
accept_greedy = Op(_accept_greedy)


def all_ops() -> dict[str, "Op[..., object]"]:
    """Return every op by its name."""
    return {name: op for name, op in globals().items() if isinstance(op, Op)}
