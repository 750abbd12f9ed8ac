"""A reference-first research toolkit for DDTree speculative decoding."""

from . import builders, draw, kdtr, ops, plot
from .decode import autoregressive, speculative
from .decode_result import Decoded, Decoding
from .kdtr import KdtrError
from .loading import ModelError, load_model
from .ops import BackendUnavailable
from .reference.errors import ShapeError, TreeError
from .reference.tree_batch import NO_NODE, ROOT, TreeBatch
from .replay import replay, tree_at
from .replay_result import ReplayResult
from .sampling import Seeded, greedy
from .target import Target
from .trace import Trace, TraceError
from .tree import DraftTree

__all__ = [
    "NO_NODE",
    "ROOT",
    "BackendUnavailable",
    "Decoded",
    "Decoding",
    "DraftTree",
    "KdtrError",
    "ModelError",
    "ReplayResult",
    "Seeded",
    "ShapeError",
    "Target",
    "Trace",
    "TraceError",
    "TreeBatch",
    "TreeError",
    "autoregressive",
    "builders",
    "draw",
    "greedy",
    "kdtr",
    "load_model",
    "ops",
    "plot",
    "replay",
    "speculative",
    "tree_at",
]
