"""Record a dense trace of a transformers model and its DFlash drafter, on the model's device (extra `hf`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .drafter_loading import parse_drafter_config
from .drafters.block_diffusion import check_fit
from .hf_tensors import open_tensors, parsed
from .record import Recorded, check_limits, check_tokens, next_token, open_prompts, trace_of
from .reference.arrays import Float, Index
from .sampling import Sampler, greedy
from .trace import Trace

if TYPE_CHECKING:
    from .torch_drafter import TorchDrafter

__all__ = ["load_torch_drafter", "record_hf"]

Tensor: TypeAlias = Any  # torch is imported where it is used: the rest of the project does without
LOGITS = 1 << 25  # of the drafter at once: bounds the memory, and more is not faster


def record_hf(
    model: Any,
    drafter: "str | PathLike[str] | TorchDrafter",
    prompts: Sequence[ArrayLike],
    *,
    anchors: int,
    K: int = 64,
    sampler: Sampler = greedy,
    stop_tokens: Iterable[int] = (),
    metadata: Mapping[str, str] | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Trace:
    """Record what `record` records, of a causal language model of transformers and a block-diffusion drafter.

    The model writes token by token with its cache and its hidden states are kept; then the drafter runs at all anchors
    of the text, many at once.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Of any architecture that returns `hidden_states`; in eval mode, on its device and in its precision.
    drafter : folder or TorchDrafter
        A DFlash folder, see `load_torch_drafter`, or a module on the model's device and in its precision.
    prompts, anchors, K, sampler, stop_tokens, metadata, progress
        See `record`; the sampler gets float32 logits in numpy. Progress counts sequences.

    Returns
    -------
    Trace
        As `record` returns it; logits are cast to float32 before the log-softmax.

    Raises
    ------
    ImportError
        torch is not installed.
    ValueError
        The drafter does not fit the model, a prompt or another argument is bad, or logits have NaN.

    Cost
    ----
    S T passes of the model over one token each, and one of the drafter over S T blocks. Memory: the logits of 2**25
    numbers at once, and D numbers a tap and token.

    Invariants
    ----------
    - it equals `record` with the two as functions (test_a_qwen3_trace_is_that_of_a_plain_loop)
    - it equals the numpy models (test_a_deepseek_trace_is_that_of_the_numpy_models)
    """
    import torch

    anchors, K, stops = check_limits(anchors, K, stop_tokens)
    module = load_torch_drafter(drafter, model) if isinstance(drafter, str | PathLike) else drafter
    V, D = model.get_input_embeddings().weight.shape
    config = model.config.get_text_config()
    check_fit(module.config, V, D, config.num_hidden_layers)
    recorded, opened = [], open_prompts(prompts)
    check_positions(opened, anchors, getattr(config, "max_position_embeddings", None))
    for s, prompt_P in enumerate(opened):
        with torch.inference_mode():
            text = write(model, module.config.target_layer_ids, prompt_P, anchors, sampler, stops, f"sequence {s}")
            ids, rows = drafts(model, module, text, len(prompt_P), K, f"sequence {s}")
        recorded.append(Recorded(prompt_P, text.token_T[len(prompt_P) :], ids, rows))
        if progress is not None:
            progress(s + 1, len(opened))
    return trace_of(recorded, model.get_output_embeddings().weight.shape[0], metadata)


def check_positions(prompts: Sequence[Index], anchors: int, positions: int | None) -> None:
    """Raise ValueError unless each prompt and its anchors have a position; `None` is a model without a limit."""
    for s, prompt_P in enumerate(prompts):
        if positions is not None and len(prompt_P) + anchors > positions:
            raise ValueError(
                f"prompts, sequence {s}: got {len(prompt_P)} tokens, needs at most {positions - anchors}: "
                f"the model's {positions} positions less {anchors} anchors"
            )


def load_torch_drafter(folder: str | PathLike[str], model: Any) -> "TorchDrafter":
    """Load a drafter as DFlash stores it, onto the device and in the precision of its model.

    Raises
    ------
    ModelError
        The config or a tensor is not supported, missing, of another shape, unknown or not finite; see `load_drafter`.
    """
    import torch

    from .torch_drafter import TorchDrafter

    folder = Path(fspath(folder))
    module = TorchDrafter(parsed(folder / "config.json", parse_drafter_config))
    with open_tensors(folder, np.float32) as tensors:
        state = {
            name: torch.from_numpy(tensors.floats(name, *value.shape)) for name, value in module.state_dict().items()
        }
        tensors.check_all_taken("drafter")
    module.load_state_dict(state)
    placed: TorchDrafter = module.to(model.device, model.dtype).eval()
    return placed


class Text(NamedTuple):
    """What a model wrote."""

    token_T: Index  #: the prompt, then the new tokens
    feature_TI: Tensor  #: of all tokens but the last


def write(
    model: Any,
    target_layer_ids: Sequence[int],
    prompt_P: Index,
    anchors: int,
    sampler: Sampler,
    stops: frozenset[int],
    where: str,
) -> Text:
    """Continue a prompt with the model's cache, and keep what the drafter reads of each token."""
    import torch

    known, features, cache = prompt_P.tolist(), [], None
    check_tokens(known, model.get_input_embeddings().weight.shape[0], where)
    named = "cache" if "cache" in signature(model.forward).parameters else "past_key_values"  # transformers < 5.24
    unread = known
    for t in range(anchors):
        read = torch.tensor([unread], device=model.device)
        out = model(read, **{named: cache}, use_cache=True, output_hidden_states=True, logits_to_keep=1)
        cache = getattr(out, named)
        features.append(torch.cat([out.hidden_states[layer + 1][0].to(model.device) for layer in target_layer_ids], 1))
        logit_V = out.logits[0, -1].float().cpu().numpy()
        if np.isnan(logit_V).any():
            raise ValueError(f"model, {where}, anchor {t}: got NaN among the logits")
        unread = [next_token(sampler, logit_V, len(known), f"{where}, anchor {t}")]
        known += unread
        if unread[0] in stops:
            break
    return Text(np.array(known, np.int32), torch.cat(features))


def drafts(model: Any, drafter: "TorchDrafter", text: Text, first: int, K: int, where: str) -> tuple[Index, Float]:
    """Return the drafter's K best tokens and their log-probs, (T, L, K), at every token from `first` on."""
    import torch

    V, N = model.get_output_embeddings().weight.shape[0], drafter.config.block_size
    positions = torch.arange(first, len(text.token_T), device=model.device)
    token_T = torch.from_numpy(text.token_T).to(model.device).long()
    ids, rows = [], []
    for anchor_A in positions.split(max(1, LOGITS // (N * V))):
        block_AN = torch.full((len(anchor_A), N), drafter.config.mask_token_id, device=model.device)
        block_AN[:, 0] = token_T[anchor_A]
        x_AND = model.get_input_embeddings()(block_AN)
        hidden_AND = drafter(text.feature_TI[None], x_AND[None], anchor_A[None])[0]
        logprob_ALV = model.get_output_embeddings()(hidden_AND[:, 1:]).float().log_softmax(dim=-1)
        for anchor in anchor_A[logprob_ALV.isnan().any(dim=2).any(dim=1)]:
            raise ValueError(f"drafter, {where}, anchor {anchor - first}: got NaN among the log-probs")
        best = logprob_ALV.sort(dim=-1, descending=True, stable=True)  # topk promises no order among equals
        ids.append(best.indices[..., :K].int().cpu().numpy())
        rows.append(best.values[..., :K].cpu().numpy())
    return np.concatenate(ids), np.concatenate(rows)
