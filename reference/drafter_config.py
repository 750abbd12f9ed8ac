"""The shape of a block-diffusion drafter, and which layers of the target it listens to."""

from dataclasses import dataclass

from .config import Yarn

__all__ = ["DrafterConfig", "default_target_layer_ids"]


@dataclass(frozen=True)
class DrafterConfig:
    """A DFlash drafter: a small Qwen3-style stack; names and meanings are those of its config.json.

    Raises
    ------
    ValueError
        A size is out of range, or two do not fit each other.

    Invariants
    ----------
    - sizes that do not fit are refused by name (test_a_drafter_config_that_does_not_fit_is_refused_by_name)
    """

    hidden_size: int  #: the target's too: the drafter has no embedding and no lm_head of its own
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int  #: each is shared by num_attention_heads / num_key_value_heads queries
    head_dim: int  #: all of it is rotated, in halves
    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    yarn: Yarn | None  #: stretches positions only; the score is not corrected
    block_size: int  #: the anchor and the tokens to draft
    mask_token_id: int  #: stands for a token to draft
    target_layer_ids: tuple[int, ...]  #: taps: the drafter reads what comes out of these layers, in this order

    def __post_init__(self) -> None:
        for name in (
            "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "intermediate_size",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, needs 1 or more")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads: got {self.num_key_value_heads}, "
                f"needs a divisor of num_attention_heads = {self.num_attention_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim: got {self.head_dim}, needs an even number: pairs are rotated")
        if self.block_size < 2:
            raise ValueError(f"block_size: got {self.block_size}, needs 2 or more: the anchor and a token to draft")
        if self.mask_token_id < 0:
            raise ValueError(f"mask_token_id: got {self.mask_token_id}, needs a token")
        if not self.target_layer_ids or min(self.target_layer_ids) < 0:
            raise ValueError(f"target_layer_ids: got {self.target_layer_ids}, needs one or more layers, counted from 0")

    @property
    def draft_len(self) -> int:
        """L, the tokens that one block drafts."""
        return self.block_size - 1

    @property
    def feature_size(self) -> int:
        """Numbers that the drafter reads of a token of the target: hidden_size for each tap."""
        return len(self.target_layer_ids) * self.hidden_size


def default_target_layer_ids(num_target_layers: int, num_draft_layers: int) -> tuple[int, ...]:
    """Return as many taps as draft layers, spread over the target from its layer 1 on.

        id[i] = round(1 + i (target layers - 4) / (n - 1)), halves to even;  target layers // 2 for n = 1

    Parameters
    ----------
    num_target_layers : int
        5 or more: for fewer the formula leads out of the model.
    num_draft_layers : int
        n, 1 or more. With more draft layers than target layers to spread over, some come twice.

    Raises
    ------
    ValueError
        A count is too small; taps must be chosen by hand then.

    Source: `build_target_layer_ids` of github.com/z-lab/dflash.

    Examples
    --------
    >>> default_target_layer_ids(61, 6)  # Kimi K2.6
    (1, 12, 24, 35, 47, 58)
    """
    if num_target_layers <= 4:
        raise ValueError(f"num_target_layers: got {num_target_layers}, needs 5 or more; give target_layer_ids instead")
    if num_draft_layers < 1:
        raise ValueError(f"num_draft_layers: got {num_draft_layers}, needs 1 or more")
    if num_draft_layers == 1:
        return (num_target_layers // 2,)
    last = num_draft_layers - 1
    return tuple(round(1 + i * (num_target_layers - 4) / last) for i in range(num_draft_layers))
