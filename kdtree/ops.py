"""The ops, one line each: call one for the numpy truth, or `.on(backend)` for the same function elsewhere."""

import importlib
from collections.abc import Callable
from functools import partial, update_wrapper
from os import PathLike
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar, cast

from .reference.absorb import absorb as _absorb
from .reference.accept_greedy import accept_greedy as _accept_greedy
from .reference.argmax import argmax as _argmax
from .reference.compact_cache import compact_cache as _compact_cache
from .reference.embed import embed as _embed
from .reference.int4_dequant import int4_dequant as _int4_dequant
from .reference.linear import linear as _linear
from .reference.moe import moe as _moe
from .reference.retrieve import retrieve as _retrieve
from .reference.rms_norm import rms_norm as _rms_norm
from .reference.rope import rope as _rope
from .reference.route import route as _route
from .reference.swiglu import swiglu as _swiglu
from .reference.top_k import top_k as _top_k
from .reference.tree_build import tree_build as _tree_build
from .reference.unabsorb import unabsorb as _unabsorb
from .reference.verify_attention import verify_attention as _verify_attention
from .reference.visibility import visibility as _visibility
from .reference.visibility_intervals import visibility_intervals as _visibility_intervals
from .reference.visibility_packed import visibility_packed as _visibility_packed

__all__ = [
    "BackendUnavailable",
    "Op",
    "absorb",
    "accept_greedy",
    "all_ops",
    "argmax",
    "compact_cache",
    "embed",
    "int4_dequant",
    "linear",
    "moe",
    "retrieve",
    "rms_norm",
    "rope",
    "route",
    "swiglu",
    "top_k",
    "tree_build",
    "unabsorb",
    "verify_attention",
    "visibility",
    "visibility_intervals",
    "visibility_packed",
]

P = ParamSpec("P")
R = TypeVar("R")

KERNELS = Path(__file__).parent / "kernels"
REMEDY = {
    "numba": "pip install numba",
    "host": "install g++, for example with apt-get install g++",
    "cuda": "pip install 'kdtree-lab[cuda]'",
}
FILE = {"numba": "numba/{}.py", "host": "cuda/{}.cu", "cuda": "cuda/{}.cu"}  # whose being there registers a kernel


class BackendUnavailable(ImportError):
    """The backend is unknown, has no kernel for this op, or its library is not installed."""


class Op(Generic[P, R]):
    """A function with one meaning and several implementations.

    The truth is the function of this name in `kdtree.reference`; a file in `kdtree/kernels` holds the same function for
    a backend, and is its only registration: `numba/<name>.py` for "numba", `cuda/<name>.cu` with its wrapper
    `cuda/<name>.py` for "cuda" and for "host", which runs the CUDA source on the CPU. `on` puts a .cu file of your own
    under the same wrapper; numba's kernels are Python and have no such file: call yours instead.
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
        return ("numpy", *(backend for backend, file in FILE.items() if (KERNELS / file.format(self.name)).is_file()))

    def on(self, backend: str, source: str | PathLike[str] | None = None) -> Callable[P, R]:
        """Return this op on a backend, or raise BackendUnavailable; nothing is substituted in silence.

        `source`, for "host" and "cuda" alone, is the path of a .cu file that takes the place of `cuda/<name>.cu`: its
        kernels have the same names and parameters. It may include headers beside it or ours, and is read at each call.

        Raises
        ------
        ValueError
            The backend takes no source, or the source lacks a kernel.
        FileNotFoundError
            There is no such file.
        """
        if source is not None:
            return self._find(backend, source)
        if backend not in self._found:
            self._found[backend] = self._find(backend)
        return self._found[backend]

    def _find(self, backend: str, source: str | PathLike[str] | None = None) -> Callable[P, R]:
        if source is not None and backend not in ("host", "cuda"):
            raise ValueError(f"source: got one for backend {backend!r}, needs backend 'host' or 'cuda'")
        if backend not in FILE:
            raise BackendUnavailable(f"backend: got {backend!r}, needs one of {', '.join(('numpy', *FILE))}")
        if backend not in self.backends():
            raise BackendUnavailable(f"{self.name} has no {backend} kernel; it runs on {', '.join(self.backends())}")
        sources = {}
        if source is not None:
            from .kernels.cuda._source import replacement  # where it is asked for: importing kdtree is quick

            sources[self.name] = replacement(self.name, source)
        kernels, folder = f"{__package__}.kernels", FILE[backend].partition("/")[0]
        try:
            library = importlib.import_module("numba" if backend == "numba" else f"{kernels}.{backend}._device")
            device = None if backend == "numba" else library.device(sources)
        except ImportError as error:
            raise BackendUnavailable(f"backend {backend}: {error}; {REMEDY[backend]}") from error
        kernel = getattr(importlib.import_module(f"{kernels}.{folder}.{self.name}"), self.name)
        if device is not None:
            kernel = update_wrapper(partial(kernel, device), kernel)
            del kernel.__wrapped__  # or inspect would show the device
        return cast(Callable[P, R], kernel)


tree_build = Op(_tree_build)
visibility = Op(_visibility)
visibility_packed = Op(_visibility_packed)
visibility_intervals = Op(_visibility_intervals)
retrieve = Op(_retrieve)
accept_greedy = Op(_accept_greedy)
compact_cache = Op(_compact_cache)
embed = Op(_embed)
linear = Op(_linear)
int4_dequant = Op(_int4_dequant)
rms_norm = Op(_rms_norm)
rope = Op(_rope)
absorb = Op(_absorb)
verify_attention = Op(_verify_attention)
unabsorb = Op(_unabsorb)
swiglu = Op(_swiglu)
route = Op(_route)
moe = Op(_moe)
argmax = Op(_argmax)
top_k = Op(_top_k)


def all_ops() -> dict[str, "Op[..., object]"]:
    """Return every op by its name."""
    return {name: op for name, op in globals().items() if isinstance(op, Op)}
