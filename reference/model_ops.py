"""The ops of a model, by name: the namespace that `transformer.forward` runs over by default."""

from .absorb import absorb
from .embed import embed
from .linear import linear
from .moe import moe
from .rms_norm import rms_norm
from .rope import rope
from .route import route
from .swiglu import swiglu
from .unabsorb import unabsorb
from .verify_attention import verify_attention

__all__ = [
    "absorb",
    "embed",
    "linear",
    "moe",
    "rms_norm",
    "rope",
    "route",
    "swiglu",
    "unabsorb",
    "verify_attention",
]
