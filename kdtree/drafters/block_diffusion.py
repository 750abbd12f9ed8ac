"""The block-diffusion drafter at work on sequences: it keeps a context and reads the target's streams as they come."""

from typing import TYPE_CHECKING

from kdtree.reference.arrays import Float, Index, floats, integers, sizes
from kdtree.reference.block_diffusion import draft, empty_context, extend_context, mask_block, target_features
from kdtree.reference.drafter_config import DrafterConfig
from kdtree.reference.drafter_weights import DrafterWeights
from kdtree.reference.errors import ShapeError
from kdtree.reference.weights import Weights

if TYPE_CHECKING:
    from kdtree.drafters import DraftSession

__all__ = ["BlockDiffusion", "BlockDiffusionSession", "check_fit"]


class BlockDiffusion:
    """Draft a block of tokens in one pass, from what the target thinks of the tokens so far.

    Parameters
    ----------
    weights : DrafterWeights
    target : Weights
        The model that it was trained beside: it lends its embedding and its lm_head.
    exact : bool
        Read the target's streams one token at a time, so that a draft has the same bits however rounds were split.
        Slower for long prompts.

    Raises
    ------
    ValueError
        A size, a layer or the mask token does not fit the target; ShapeError if the precision does not.

    Invariants
    ----------
    - a drafter of another target is refused by name (test_a_drafter_that_does_not_fit_its_target_is_refused_by_name)
    - drafts do not depend on how rounds were split (test_exact_drafts_do_not_depend_on_how_rounds_were_split)
    """

    def __init__(self, weights: DrafterWeights, target: Weights, exact: bool = False) -> None:
        model = target.config
        check_fit(weights.config, model.vocab_size, model.hidden_size, model.num_hidden_layers)
        if weights.fc_DI.dtype != target.embed_VD.dtype:
            raise ShapeError(f"weights: got dtype {weights.fc_DI.dtype}, needs the target's, {target.embed_VD.dtype}")
        self.weights, self.target, self.exact = weights, target, exact
        self.draft_len = weights.config.draft_len

    def session(self) -> "DraftSession":
        """Return a fresh session, for one sequence."""
        return BlockDiffusionSession(self)


def check_fit(config: DrafterConfig, V: int, D: int, layers: int) -> None:
    """Raise ValueError unless a drafter of this config can listen to a target of these sizes."""
    if config.hidden_size != D:
        raise ValueError(f"hidden_size: got {config.hidden_size}, needs the target's, {D}")
    if config.mask_token_id >= V:
        raise ValueError(f"mask_token_id: got {config.mask_token_id}, needs 0 to {V - 1}")
    last = layers - 1
    if max(config.target_layer_ids) >= last:  # what comes out of the last is normed before it is returned
        raise ValueError(f"target_layer_ids: got {config.target_layer_ids}, needs layers before the last, {last}")


class BlockDiffusionSession:
    """One sequence: the drafter's context of the tokens that the target has committed."""

    def __init__(self, drafter: BlockDiffusion) -> None:
        self._drafter = drafter
        self._context = empty_context(drafter.weights)

    def propose(self, token_T: Index, new_hidden_YTD: Float) -> Float:
        """Return log-probs (L, V) for the tokens after `token_T`; see `kdtree.drafters.DraftSession`.

        Raises
        ------
        ShapeError
            The streams are not those of the tokens between the last call and the last token, or not of this target.
        ValueError
            The last token is not in the vocabulary. In both cases the session is as it was before the call.
        """
        token_T, drafter = integers("token_T", token_T), self._drafter
        hidden_YTD = self._checked(token_T, new_hidden_YTD)
        feature_TI = target_features(hidden_YTD, drafter.weights.config.target_layer_ids)
        context = extend_context(drafter.weights, self._context, feature_TI, drafter.exact)
        block_T = mask_block(drafter.weights.config, token_T[-1])
        logprob_LV = draft(drafter.weights, drafter.target.embed_VD, drafter.target.lm_head_VD, context, block_T)
        self._context = context
        return logprob_LV

    def _checked(self, token_T: Index, new_hidden_YTD: Float) -> Float:
        """Return the streams, or raise ShapeError unless they are of the tokens that the context lacks."""
        if sizes(token_T=token_T)["T"] == 0:
            raise ShapeError("token_T: got no tokens, needs 1 or more: a draft follows a token")
        hidden_YTD, model = floats("new_hidden_YTD", new_hidden_YTD), self._drafter.target.config
        first, new = self._context.length, len(token_T) - 1 - self._context.length
        if new < 0:
            raise ShapeError(f"token_T: got {len(token_T)} tokens, needs more than the {first} of earlier calls")
        needs = (model.num_hidden_layers + 1, new, model.hidden_size)
        if hidden_YTD.shape != needs:
            raise ShapeError(
                f"new_hidden_YTD: got shape {hidden_YTD.shape}, needs {needs}: {new} tokens from position {first} on"
            )
        if hidden_YTD.dtype != (dtype := self._drafter.weights.fc_DI.dtype):
            raise ShapeError(f"new_hidden_YTD: got dtype {hidden_YTD.dtype}, needs the drafter's, {dtype}")
        return hidden_YTD
