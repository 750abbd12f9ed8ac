"""A target and a drafter of this project as the two functions that `record` asks."""

import numpy as np

from . import ops
from .drafters import Drafter
from .reference.arrays import Float, Index
from .target import Target

__all__ = ["ModelPair"]

SLOT = np.zeros((1, 1), np.int32)


class ModelPair:
    """Two functions of a prefix, `target` and `drafter`, that read each token once.

    A prefix that extends the last one costs its new tokens; another one starts afresh. Asked as `record` asks, the
    target for a token and then the drafter behind it, the two take as long as plain decoding and a draft a token.

    Parameters
    ----------
    target : Target
        With exact=True, or on numba, its logits have the bits that live decoding sees.
    drafter : Drafter
        Its sessions get the target's hidden streams as those of `speculative` do.

    Invariants
    ----------
    - the trace has the bits that live decoding sees (test_a_replay_of_a_recorded_trace_has_the_rounds_of_a_live_run)
    - the order of calls changes nothing (test_a_pair_answers_the_same_in_any_order)
    - each token is read once (test_recording_reads_each_token_once)

    Examples
    --------
    >>> from importlib.resources import files
    >>> from kdtree import load_model, record
    >>> from kdtree.drafters.prompt_lookup import PromptLookup
    >>> weights = load_model(files("kdtree") / "data" / "golden" / "hf" / "k26")
    >>> pair = ModelPair(Target(weights, backend="numba"), PromptLookup(draft_len=3, vocab_size=257))
    >>> record(pair.drafter, pair.target, [[5, 17, 200], [80, 3]], anchors=6, K=8)
    <Trace of 2 sequences x 6 anchors, L = 3, K = 8>
    """

    def __init__(self, target: Target, drafter: Drafter) -> None:
        self._target, self._drafter = target, drafter
        self._start()

    def _start(self) -> None:
        """Forget the sequence."""
        self._cache = self._target.new_cache(1)
        self._session = self._drafter.session()
        self._known_T: Index = np.zeros(0, np.int32)  #: the tokens in the cache
        self._unread: list[Float] = []  #: streams of the last of them, which the session has not got

    def target(self, prefix_T: Index) -> Float:
        """Return the logits (V,) of the token behind a prefix of 1 or more tokens."""
        self._read(prefix_T[:-1])
        rows = np.zeros((1, 0, 0))
        root = ops.tree_build(prefix_T[-1:], rows, rows.astype(np.int32), budget=0)
        verified = self._target.verify(self._cache, root)
        self._cache.commit(SLOT, SLOT[0] + 1)
        self._known_T = prefix_T.copy()
        self._unread.append(verified.hidden_YBND[:, 0])
        logit_V: Float = verified.logit_BNV[0, 0]
        return logit_V

    def drafter(self, prefix_T: Index) -> Float:
        """Return the log-probs (L, V), nats, of the tokens behind a prefix, whose last token is the anchor."""
        self._read(prefix_T[:-1])
        logprob_LV = self._session.propose(prefix_T, np.concatenate(self._unread, axis=1))
        self._unread = []
        return logprob_LV

    def _read(self, prefix_T: Index) -> None:
        """Let the cache hold these tokens and no others."""
        known = len(self._known_T)
        if not np.array_equal(prefix_T[:known], self._known_T):
            self._start()
            known = 0
        self._unread.append(self._target.read(self._cache, 0, prefix_T[known:]))
        self._known_T = prefix_T.copy()
