"""A reference-first research toolkit for DDTree speculative decoding."""

from . import builders, draw, kdtr, ops, plot
from .kdtr import KdtrError
from .loading import ModelError, load_model
from .ops import BackendUnavailable
from .reference.errors import ShapeError, TreeError
from .reference.tree_batch import NO_NODE, ROOT, TreeBatch
from .replay import replay, tree_at
from .replay_result import ReplayResult
from .trace import Trace, TraceError
from .tree import DraftTree

__all__ = [
    "NO_NODE",
    "ROOT",
    "BackendUnavailable",
    "DraftTree",
    "KdtrError",
    "ModelError",
    "ReplayResult",
    "ShapeError",
    "Trace",
    "TraceError",
    "TreeBatch",
    "TreeError",
    "builders",
    "draw",
    "kdtr",
    "load_model",
    "ops",
    "plot",
    "replay",
    "tree_at",
]
