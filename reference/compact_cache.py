"""Keep the accepted path in the cache and drop the rest of the tree."""

from .arrays import Float, Index, integers, sizes
from .errors import ShapeError, TreeError
from .tree_batch import ROOT

__all__ = ["compact_cache"]


def compact_cache(kv_YBSX: Float, prefix_len_B: Index, path_BN: Index, accept_len_B: Index) -> Index:
    """Move the rows of each accepted path behind its prefix, in all layers, in place.

        kv[:, b, P + j] = kv[:, b, P + path[b, j]]   for j < accept_len, gathered before any is written

    Rows already carry their absolute positions, so nothing is computed again.

    Parameters
    ----------
    kv_YBSX : float, shape (Y, B, S, X)
        Cache of all layers; changed in place.
    prefix_len_B : int, shape (B,)
        Committed rows P before the round.
    path_BN : int, shape (B, N)
        Accepted slots from the root down, -1 after them.
    accept_len_B : int, shape (B,)
        Slots on the path, 0..N.

    Returns
    -------
    length_B : int32, shape (B,)
        Committed rows after the round: prefix_len + accept_len.

    Raises
    ------
    TreeError
        A path does not start at the root, does not ascend, or leads out of the cache. Nothing is changed then.

    Invariants
    ----------
    - the cache is that of the accepted tokens alone (test_a_compacted_cache_is_that_of_a_plain_run)
    - batch rows and rows past the path stay as they are (test_compaction_touches_the_path_alone)
    """
    path_BN, accept_len_B = integers("path_BN", path_BN), integers("accept_len_B", accept_len_B)
    prefix_len_B = integers("prefix_len_B", prefix_len_B)
    size = sizes(kv_YBSX=kv_YBSX, prefix_len_B=prefix_len_B, path_BN=path_BN, accept_len_B=accept_len_B)
    for b, (P, length) in enumerate(zip(prefix_len_B.tolist(), accept_len_B.tolist(), strict=True)):
        if not 0 <= length <= size["N"]:
            raise TreeError(f"accept_len_B: got {length} at batch row {b}, needs 0 to N = {size['N']}")
        if not 0 <= P <= size["S"]:
            raise ShapeError(f"prefix_len_B: got {P} at batch row {b}, needs 0 to S = {size['S']}")
        path = path_BN[b, :length]
        if length and (path[0] != ROOT or (path[1:] <= path[:-1]).any() or P + int(path[-1]) >= size["S"]):
            raise TreeError(
                f"path_BN: got {path.tolist()} at batch row {b}, needs slots that ascend from 0 within the cache"
            )
    for b, (P, length) in enumerate(zip(prefix_len_B.tolist(), accept_len_B.tolist(), strict=True)):
        kv_YBSX[:, b, P : P + length] = kv_YBSX[:, b, P + path_BN[b, :length]]  # fancy indexing gathers first
    return prefix_len_B + accept_len_B
