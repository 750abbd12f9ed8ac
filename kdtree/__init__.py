"""A reference-first research toolkit for DDTree speculative decoding."""

from . import builders, diagnostics, draw, kdtr, ops, plot, plot_diagnostics
from .decode import autoregressive, speculative
from .decode_result import Decoded, Decoding
from .kdtr import KdtrError
from .loading import ModelError, load_model
from .ops import BackendUnavailable
from .record import record
from .reference.errors import ShapeError, TreeError
from .reference.tree_batch import NO_NODE, ROOT, TreeBatch
from .replay import replay, tree_at
from .replay_result import ReplayResult
from .sampling import Seeded, greedy
from .shipped import tiny_pair, tiny_prompts
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
    "diagnostics",
    "draw",
    "greedy",
    "kdtr",
    "load_model",
    "ops",
    "plot",
    "plot_diagnostics",
    "record",
    "replay",
    "speculative",
    "tiny_pair",
    "tiny_prompts",
    "tree_at",
]
