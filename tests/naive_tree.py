"""Trees by definition: slow, and as plain as the sentences that describe them."""


def paths(parent_N, n):
    """Return, for each real slot, the slots from the root down to it."""
    path = {0: [0]}
    for slot in range(1, n):
        path[slot] = [*path[int(parent_N[slot])], slot]
    return path
