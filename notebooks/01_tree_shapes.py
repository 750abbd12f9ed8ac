# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Tree shapes
#
# Speculative decoding drafts several tokens with a small model and checks all of them in one pass of the large one,
# the *target*. This notebook shows how DDTree chooses which drafts to check: from the marginals of a block-diffusion
# drafter to a tree, its attention mask, and the walk that accepts tokens.
#
# The method is that of Ringel and Romano, *Accelerating Speculative Decoding with Block Diffusion Draft Trees*,
# arXiv 2604.12989. The notebook `02_accept_length_vs_budget` measures how many tokens such trees gain.
#
# Every number in the text is asserted in a cell beside it.

# %%
from heapq import heappop, heappush
from itertools import combinations, product

import matplotlib.pyplot as plt
import numpy as np
from ipywidgets import IntSlider, interact

import kdtree
from kdtree import DraftTree, ops, plot
from kdtree.draw.look import ACCEPTED, PLAIN
from kdtree.draw.picture import place

GREY, GREEN = "#8c959f", "#009e73"
plt.rcParams |= {"figure.dpi": 100, "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
plt.rcParams["axes.prop_cycle"] = plt.cycler(color=plot.COLOURS)

# %% [markdown]
# ## 1. One pass of the drafter gives L marginals
#
# An autoregressive drafter needs one pass for each token. A block-diffusion drafter fills a block of $L$ masked
# positions in one pass: for each of the next $L$ positions it returns a distribution over the vocabulary,
#
# $$q_1, q_2, \dots, q_L .$$
#
# These are *marginals*: $q_2$ does not know which token position 1 will take.
#
# The running example has $L = 3$ and keeps the best $K = 3$ tokens of each row. The last committed token is "cat". It
# is the *root* of everything that follows: the bonus token of the last round, already paid for.

# %%
WORDS_LK = [["sat", "is", "ran"], ["on", "down", "the"], ["the", "a", "my"]]
PROB_LK = np.array([[0.50, 0.28, 0.12], [0.60, 0.20, 0.10], [0.70, 0.15, 0.10]])
L, K = PROB_LK.shape

VOCAB = ["cat", *dict.fromkeys(word for row in WORDS_LK for word in row)]
token_LK = np.array([[VOCAB.index(word) for word in row] for row in WORDS_LK])
logprob_LK = np.log(PROB_LK)

fig, axes = plt.subplots(1, L, figsize=(9, 2.2), sharex=True, layout="constrained")
for d, ax in enumerate(axes):
    ax.barh([*WORDS_LK[d], "all others"], [*PROB_LK[d], 1 - PROB_LK[d].sum()], color=[PLAIN] * K + [GREY])
    ax.invert_yaxis()
    ax.set(title=f'$q_{d + 1}$, position {d + 1} after "cat"', xlabel="probability")
plt.show()

# %% [markdown]
# ## 2. The weight of a prefix
#
# With nothing but marginals, the drafter's belief about the next $L$ tokens is their product,
#
# $$Q(y) = \prod_{d=1}^{L} q_d(y_d) ,$$
#
# and its belief that the text goes on with a prefix $u = (u_1, \dots, u_n)$ is $q(u) = \prod_{d=1}^{n} q_d(u_d)$.
#
# The product is a rough belief: it gives "ran the my" some weight, because each position was judged alone. The target
# checks everything, so a rough belief costs speed, not correctness.
#
# There are $3 + 9 + 27 = 39$ prefixes of the listed words. Here they are, the most probable first.

# %%
ranked = sorted(
    (-np.prod([PROB_LK[d, r] for d, r in enumerate(ranks)]), ranks)
    for n in range(1, L + 1)
    for ranks in product(range(K), repeat=n)
)
q = {ranks: -negative for negative, ranks in ranked}
assert len(q) == 3 + 9 + 27 == 39


def words(ranks):
    """Return the words of a prefix given by ranks."""
    return " ".join(WORDS_LK[d][r] for d, r in enumerate(ranks))


BUDGET = 8
fig, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
ax.bar(range(len(q)), q.values(), color=[PLAIN if i < BUDGET else GREY for i in range(len(q))])
ax.set_xticks(range(len(q)), [words(ranks) for ranks in q], rotation=90, fontsize=8)
ax.axvline(BUDGET - 0.5, color="black", linewidth=0.8)
ax.text(BUDGET - 0.2, 0.45, f"left of the line: the {BUDGET} most probable prefixes")
ax.set(ylabel="q (probability of the prefix)", xlim=(-0.7, len(q) - 0.3))
assert "ran the my" in map(words, q)
plt.show()

# %% [markdown]
# ## 3. A tree is a prefix-closed set of prefixes
#
# The target can check many prefixes in one pass if they share their beginnings. A *draft tree* is a set of non-empty
# prefixes that contains, with a prefix, also every shorter beginning of it. Each prefix is a node; it carries its last
# token. Its parent is the prefix without that token, and the root "cat" is the parent of prefixes of length 1.
#
# The *budget* $B$ is the number of nodes below the root. The root is not counted: the target reads it in any case,
# to find the token after it.
#
# The 8 most probable prefixes form such a tree. `ops.tree_build` makes it; on the right of each box stands the
# probability of its token, and the more probable the whole path, the darker the box and the wider the edge.

# %%
batch = ops.tree_build([VOCAB.index("cat")], logprob_LK[None], token_LK[None], budget=BUDGET)
tree = DraftTree.from_batch(batch)
word = VOCAB.__getitem__

fig, ax = plt.subplots(figsize=(9, 2.6), layout="constrained")
plot.tree(tree, ax, label=word)
plt.show()
# %% [markdown]
# ## 4. What a tree is worth: the surrogate
#
# In a round the target starts at the root and walks down as long as the token that it wants is a child. The round
# commits the tokens on the path, and one more that the target provides by itself, the *bonus* token. So
#
# $$\text{accept length} = 1 + \text{accepted drafts} .$$
#
# Suppose that the text really goes on as $Q$ says. A node is on the accepted path exactly if the text begins with its
# prefix, which happens with probability $q(\text{node})$. The accepted drafts are the number of such nodes, and the
# expectation of a sum is the sum of the expectations:
#
# $$\mathbb{E}[\text{accepted drafts}] = \sum_{u \,\in\, \text{tree}} q(u) .$$
#
# This is the *surrogate*: it speaks of $Q$, not of the target. With the root's $q = 1$ for the bonus token it is
# `DraftTree.expected_accept_len`. Drawing continuations from $Q$ confirms it.

# %%
rng = np.random.default_rng(0)
DRAWS = 4000
cdf_LK = np.cumsum(PROB_LK, axis=1)
rank_XL = (rng.random((DRAWS, L, 1)) > cdf_LK).sum(axis=2)  # rank K stands for all other tokens

best = [(), *list(q)[:BUDGET]]  # the prefixes of the tree, by slot; the root is the empty one
hits = np.array([(rank_XL[:, : len(ranks)] == np.array(ranks, int)).all(axis=1).mean() for ranks in best])

fig, ax = plt.subplots(figsize=(9, 2.8), layout="constrained")
ax.bar(range(BUDGET + 1), np.exp(tree.logw_N), color=PLAIN, alpha=0.35, label="q of the node")
ax.plot(range(BUDGET + 1), hits, "o", color="black", label=f"share of {DRAWS} draws from Q that accept it")
ax.set_xticks(range(BUDGET + 1), ["(root)", *(words(ranks).replace(" ", "\n") for ranks in best[1:])])
ax.set(ylabel="probability")
ax.legend(frameon=False)

print(f"sum of q over the slots : {tree.expected_accept_len:.3f} tokens per round")
print(f"mean of {DRAWS} draws   : {hits.sum():.3f} tokens per round")
assert abs(hits.sum() - tree.expected_accept_len) < 0.05
plt.show()

# %% [markdown]
# Two things follow.
#
# **The best tree of budget $B$ is made of the $B$ most probable prefixes.** No set of $B$ prefixes has a larger sum.
#
# **That set is a tree.** A prefix is at least as probable as anything that it begins,
# $q(u_1, \dots, u_{n-1}) \ge q(u_1, \dots, u_{n})$, so it is taken no later.
#
# For a small budget all trees can be listed. Of the trees with 4 nodes, none beats the one of the 4 most probable
# prefixes.


# %%
def is_tree(prefixes):
    """Tell whether every prefix's beginning is there too."""
    return all(len(ranks) == 1 or ranks[:-1] in prefixes for ranks in prefixes)


values = np.array([1 + sum(q[ranks] for ranks in four) for four in combinations(q, 4) if is_tree(four)])
top = tree.truncate(4).expected_accept_len
assert np.isclose(values.max(), top)

fig, ax = plt.subplots(figsize=(9, 2.4), layout="constrained")
ax.hist(values, bins=60, color=GREY)
ax.axvline(top, color=PLAIN, linewidth=2)
ax.annotate(f"4 most probable prefixes: {top:.3f}  ", (top, ax.get_ylim()[1] * 0.85), ha="right", color=PLAIN)
ax.set(xlabel="expected accept length under Q (tokens per round)", ylabel="trees")
ax.set_title(f"all {len(values)} trees of 4 nodes", fontsize=10)
plt.show()

# %% [markdown]
# ## 5. Best-first search
#
# With a vocabulary of a hundred thousand tokens nobody lists all prefixes. Algorithm 1 of the paper finds the best $B$
# with a heap that never holds more than $B + 1$ candidates. A candidate is a prefix, written as its ranks.
#
# Start with the prefix of rank 0 at depth 1. Then, $B$ times, take the most probable candidate into the tree and put
# two new candidates on the heap:
#
# - its **next sibling**: the same prefix with the last token one rank lower;
# - its **first child**: the prefix, extended by the best token of the next depth.
#
# Both are at most as probable as what they come from, so nothing that is still hidden can beat the best candidate on
# the heap. Weights are added as logarithms, in float64.


# %%
def best_first(logprob_LK, budget):
    """Return the tree's prefixes in the order of their taking, and the heap's candidates before each step."""
    taken, heap, heaps = [], [(-logprob_LK[0, 0], (0,))], []
    while heap and len(taken) < budget:
        heaps.append(sorted(heap))
        negative, ranks = heappop(heap)
        taken.append(ranks)
        d, r = len(ranks) - 1, ranks[-1]
        if r + 1 < logprob_LK.shape[1]:
            heappush(heap, (negative + logprob_LK[d, r] - logprob_LK[d, r + 1], (*ranks[:-1], r + 1)))
        if d + 1 < len(logprob_LK):
            heappush(heap, (negative - logprob_LK[d + 1, 0], (*ranks, 0)))
    heaps.append(sorted(heap))
    return taken, heaps


taken, heaps = best_first(logprob_LK, BUDGET)
assert taken == best[1:]
assert tree.token_N.tolist()[1:] == [token_LK[len(ranks) - 1, ranks[-1]] for ranks in taken]
assert max(map(len, heaps)) <= BUDGET + 1

# %% [markdown]
# The pictures show the tree after some steps; the number at a box is the $q$ of its whole prefix. Filled boxes are in
# the tree. Dashed boxes are on the heap. The green one has the largest $q$ and is taken next.


# %%
def draw_step(ax, step):
    """Draw the tree after some steps, and what is on the heap."""
    waiting = [ranks for _, ranks in heaps[step]]
    nodes = [(), *taken[:step], *waiting]
    parents = [nodes.index(ranks[:-1]) if ranks else -1 for ranks in nodes]
    last = [WORDS_LK[len(ranks) - 1][ranks[-1]] if ranks else "cat" for ranks in nodes]
    shown = DraftTree.from_parents(parents, prob_N=[1, *(PROB_LK[len(u) - 1, u[-1]] for u in nodes[1:])])
    plot.tree(shown, ax, label=last.__getitem__)
    for i, (box, number) in enumerate(zip(ax.texts[::2], ax.texts[1::2], strict=True)):
        number.set(text=f"{q[nodes[i]]:.3f}" if i else "", size=8)
        if i > step:
            colour, width = (GREEN, 2) if i == step + 1 else (GREY, 1)
            box.get_bbox_patch().set(fc="white", ec=colour, linestyle="--", lw=width)
    ax.set_title(f"{step} taken, {len(waiting)} on the heap", fontsize=10, loc="left")
    ax.set(xlim=(-0.4, L + 0.6), xlabel="")
    ax.set_xticks(range(L + 1))


fig, axes = plt.subplots(3, 2, figsize=(9, 8), layout="constrained")
for ax, step in zip(axes.flat, (0, 1, 2, 3, 5, 8), strict=True):
    draw_step(ax, step)
fig.supxlabel("depth (tokens after the root)", fontsize=10)
plt.show()
# %% [markdown]
# ## 6. Nesting: one build answers every budget
#
# The search does not know the budget while it runs; it only stops there. So the tree of budget $B$ is the first $B$
# nodes of the tree of any larger budget. Nodes are numbered in the order of their taking, and `truncate` cuts.
#
# From here on some pictures come from a recorded trace: a small model of bytes that continues Python source files,
# with a drafter of $L = 7$. Tokens are bytes; ␣ is a space and \n a new line.

# %%
trace = kdtree.Trace.shipped("pilot_t05")
assert trace.draft_len == 7
SEQUENCE, ANCHOR = 0, 58
before = bytes(trace.continuation[SEQUENCE, : ANCHOR + 1].tolist())
print("text up to the root :", before[-40:])

large, _ = kdtree.tree_at(trace, SEQUENCE, ANCHOR, "ddtree", 64)
for budget in range(65):
    assert large.truncate(budget) == kdtree.tree_at(trace, SEQUENCE, ANCHOR, "ddtree", budget)[0]

fig, axes = plt.subplots(3, 1, figsize=(9, 9), layout="constrained", height_ratios=[3, 4, 7])
for ax, budget in zip(axes, (6, 12, 24), strict=True):
    plot.tree(large.truncate(budget), ax, label=trace.label)
    for box in ax.texts[2 * (budget // 2 + 1) :: 2]:
        box.get_bbox_patch().set(ec=GREEN, lw=2)
    expected = large.truncate(budget).expected_accept_len
    ax.set_title(f"B = {budget}, expected accept length {expected:.2f}", fontsize=10, loc="left")
    ax.set(xlim=(-0.3, 5.5), xlabel="" if budget < 24 else ax.get_xlabel())
    ax.set_xticks(range(6))
plt.show()

# %% [markdown]
# Each tree has twice the nodes of the one above it, and contains it. Green outlines mark what is new. The next node is
# always the most probable one left, so the gain of a node falls with its number.
#
# Since $q$ of the nodes is known after one build, so is the surrogate at every budget: it is a running sum.

# %%
gain = np.exp(large.logw_N[1:])
assert (np.diff(gain) <= 1e-12).all()
assert np.isclose(1 + gain[:24].sum(), large.truncate(24).expected_accept_len)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
left.step(range(65), np.cumsum([1, *gain]), where="post", color=PLAIN)
left.set(xlabel="node budget B", ylabel="expected accept length\n(tokens per round)", ylim=(0, None))
right.plot(range(1, 65), gain, ".", color=PLAIN)
right.set(xlabel="number of the node", ylabel="q of the node", yscale="log")
plt.show()


# %% [markdown]
# With a running kernel, the sliders draw the tree of any position of this continuation at any budget, and mark what
# the target accepted there (section 11).


# %%
def show(anchor, budget):
    """Draw the tree of one anchor."""
    shown, path = kdtree.tree_at(trace, SEQUENCE, anchor, "ddtree", budget)
    plot.tree(shown, label=trace.label, path=path)
    plt.show()


_ = interact(show, anchor=IntSlider(ANCHOR, 0, 88), budget=IntSlider(16, 0, 64))

# %% [markdown]
# ## 7. Sharp marginals make chains, flat ones make bushes
#
# The shape of the tree is not a setting. A drafter that is sure of itself gives each row one large probability; then
# a child of the best path is worth more than any sibling, and the tree grows deep. A drafter in doubt gives flat rows;
# then a path loses most of its weight at every step, and the tree grows wide.
#
# Here every row of a tree is the same, $q_d(\text{rank } r) \propto s^{\,r}$. The smaller $s$, the sharper the row. All
# trees have 12 nodes; labels are ranks.

# %%
fig, axes = plt.subplots(3, 2, figsize=(9, 8.5), layout="constrained", width_ratios=[1, 4])
deepest = []
for (left, right), (name, s) in zip(axes, {"sharp": 0.1, "middling": 0.5, "flat": 0.85}.items(), strict=True):
    row_K = s ** np.arange(12.0)
    row_K /= row_K.sum()
    lp_BLK, rank_BLK = np.tile(np.log(row_K), (1, 7, 1)), np.tile(np.arange(12), (1, 7, 1))
    shaped = DraftTree.from_batch(ops.tree_build([0], lp_BLK, rank_BLK, budget=12))
    deepest.append(int(shaped.depth_N.max()))
    left.bar(range(12), row_K, color=PLAIN)
    left.set(xlabel="rank", ylabel="probability", ylim=(0, 1), title=f"{name}, s = {s}")
    plot.tree(shaped, right)
    right.set(xlim=(-0.5, 7.5))
    right.texts[0].set_text("root")
print("depth of the deepest node:", deepest)
assert deepest[0] > deepest[1] > deepest[2]
plt.show()

# %% [markdown]
# A trace has both kinds. Above, a position where the drafter is rather sure; below, one where it is not. On the right
# are the best 5 probabilities of each row.

# %%
fig, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained", width_ratios=[5, 3])
PLACES = (14, 44), (23, 65)  # sequence, anchor
for (_, ax), (sequence, anchor) in zip(axes, PLACES, strict=True):
    best_LK = np.exp(trace.topk_log_probs[sequence, anchor, :, :5])
    ax.imshow(best_LK.T, cmap="Blues", vmin=0, vmax=1.2, aspect="auto")
    for (d, r), p in np.ndenumerate(best_LK):
        ax.text(d, r, f"{p:.2f}", ha="center", va="center", fontsize=8)
    ax.set_xticks(range(7), range(1, 8))
    ax.set(xlabel="depth", ylabel="rank")
    ax.spines[:].set_visible(False)
shapes = []
for (ax, _), (sequence, anchor) in zip(axes, PLACES, strict=True):
    found, _ = kdtree.tree_at(trace, sequence, anchor, "ddtree", 12)
    shapes.append((int(found.depth_N.max()), int((found.depth_N == 1).sum())))
    plot.tree(found, ax, label=trace.label)
    ax.set_title(f"after {bytes(trace.continuation[sequence, anchor - 11 : anchor + 1].tolist())}", fontsize=9)
    ax.set(xlim=(-0.3, 5.5))
    ax.set_xticks(range(6))
print("(deepest node, nodes at depth 1):", shapes)
assert shapes[0][0] > shapes[1][0]
assert shapes[0][1] < shapes[1][1]
plt.show()

# %% [markdown]
# ## 8. The ancestor-only mask
#
# The target reads all nodes in one pass, after the committed text. A node must see what it would see if its path were
# the text: the committed tokens, its ancestors and itself, and nothing of the other branches. `ops.visibility` returns
# that as `visible_BNN`: for each tree of a batch, row $i$ tells which slots slot $i$ may attend to. Slot $i$ stands at
# position (committed tokens) + depth$_i$, so siblings share a position.
#
# Below, the slots are listed in the order of their depth.

# %%
visible_NN = ops.visibility(batch.parent_BN, batch.node_count_B)[0]
names = [f"{i} {word(token)}" for i, token in enumerate(tree.token_N)]


def draw_mask(ax, order, title):
    """Draw the mask with rows and columns in an order of slots."""
    ax.imshow(visible_NN[np.ix_(order, order)], cmap="Blues", vmin=0, vmax=1.3)
    ax.set_xticks(range(len(order)), [names[i] for i in order], rotation=90, fontsize=8)
    ax.set_yticks(range(len(order)), [names[i] for i in order], fontsize=8)
    ax.set_xticks(np.arange(len(order)) + 0.5, minor=True)
    ax.set_yticks(np.arange(len(order)) + 0.5, minor=True)
    ax.grid(which="minor", color="white")
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)
    ax.set(xlabel="slot j, attended to", ylabel="slot i, attending")
    ax.set_title(title, fontsize=10)


numbered = DraftTree.from_parents(tree.parent_N, prob_N=[1, *(PROB_LK[len(u) - 1, u[-1]] for u in taken)])
by_depth = np.argsort(tree.depth_N, kind="stable")
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained", width_ratios=[5, 3])
draw_mask(right, by_depth, "visible, slots by depth")
plot.tree(numbered, left, label=names.__getitem__)
left.set(xlim=(-0.4, 3.5))

assert visible_NN.diagonal().all()
assert visible_NN[:, 0].all()
assert [np.flatnonzero(row).tolist() for row in visible_NN] == [sorted(tree.path(i)) for i in range(9)]
plt.show()

# %% [markdown]
# A row has as many dark cells as its slot has ancestors, plus one. Every slot sees the root.
#
# The mask has $N^2$ cells for $N = B + 1$ slots. Two other forms are smaller and say the same:
#
# - **packed**: each row as bits in words of 64, `ops.visibility_packed`;
# - **intervals**: number the slots in preorder, a node before its subtree. Then a subtree is an interval, and
#   $j$ is visible from $i$ exactly if $\text{pre}_j \le \text{pre}_i < \text{pre}_j + \text{size}_j$,
#   `ops.visibility_intervals`. In this order each column of the mask has a single dark run, outlined on the left.

# %%
packed_NW = ops.visibility_packed(batch.parent_BN, batch.node_count_B)[0]
pre_N, size_N = (array[0] for array in ops.visibility_intervals(batch.parent_BN, batch.node_count_B))
assert (visible_NN == ((pre_N <= pre_N[:, None]) & (pre_N[:, None] < pre_N + size_N))).all()
assert [int(row[0]) for row in packed_NW] == [sum(1 << int(j) for j in np.flatnonzero(row)) for row in visible_NN]

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained", width_ratios=[4, 5])
draw_mask(left, np.argsort(pre_N), "visible, slots in preorder")
for pre, size in zip(pre_N, size_N, strict=True):
    left.add_patch(plt.Rectangle((pre - 0.5, pre - 0.5), 1, size, fill=False, ec=ACCEPTED, lw=2, zorder=3))

N = np.array([9, 17, 33, 65, 129, 257, 513, 1025])
for size, name, style in (
    (N * N, "bool mask", "o-"),
    (N * -(-N // 64) * 8, "packed", "s--"),
    (8 * N, "intervals", "D-."),
):
    right.loglog(N, size, style, base=2, label=name, markersize=4.5)
right.set(xlabel="slots N = budget + 1", ylabel="bytes per tree")
right.set_xticks(N[::2], N[::2])
right.set_yticks([2**7, 2**10, 2**13, 2**16, 2**20], ["128 B", "1 KiB", "8 KiB", "64 KiB", "1 MiB"])
right.legend(frameon=False)
for i in range(3):
    print(f"slot {names[i]:6} word {packed_NW[i, 0]:0{len(names)}b}   pre {pre_N[i]}   size {size_N[i]}")
plt.show()

# %% [markdown]
# ## 9. Retrieve links
#
# To walk down the tree one must find the children of a node. `ops.retrieve` turns parents into two arrays: the first
# child of each slot and its next sibling, -1 where there is none. The children of a slot are its first child, then
# sibling after sibling, the more probable first.

# %%
first_child_N, next_sibling_N = (array[0] for array in ops.retrieve(batch.parent_BN, batch.node_count_B))
_, row_N, _ = place(tree.parent_N)
where = np.column_stack([tree.depth_N, row_N])

fig, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
for i, name in enumerate(names):
    ax.text(*where[i], name, ha="center", va="center", bbox={"boxstyle": "round", "fc": "white", "ec": PLAIN})
    for link_N, colour, style, gap in ((first_child_N, PLAIN, "-", 24), (next_sibling_N, GREEN, "--", 11)):
        if link_N[i] != kdtree.NO_NODE:
            arrow = {"arrowstyle": "-|>", "color": colour, "linestyle": style, "shrinkA": gap, "shrinkB": gap}
            ax.annotate("", where[link_N[i]], where[i], arrowprops=arrow)
ax.plot([], [], color=PLAIN, label="first child")
ax.plot([], [], color=GREEN, linestyle="--", label="next sibling")
ax.legend(frameon=False, loc="lower right")
ax.set(xlim=(-0.3, 3.3), ylim=(row_N.max() + 0.6, -0.6), yticks=[], xlabel="depth (tokens after the root)")
ax.set_xticks(range(4))
ax.spines["left"].set_visible(False)

print("slot        ", *(f"{i:3}" for i in range(9)))
print("parent      ", *(f"{i:3}" for i in tree.parent_N))
print("first child ", *(f"{i:3}" for i in first_child_N))
print("next sibling", *(f"{i:3}" for i in next_sibling_N))
plt.show()

# %% [markdown]
# ## 10. The greedy walk
#
# The pass of the target gives a next token at *every* slot: what the target would write after that path. At
# temperature 0 it is the argmax. The walk starts at the root and goes to the child that carries the target's token; it
# stops where no child does. The target's token at the last slot is the bonus.
#
# In the picture, each box says which token the target wants after it. After "cat" it wants "is", after "is" it wants
# "on", and after "cat is on" it wants "a", which was not drafted.

# %%
WANTS = {(): "is", (1,): "on", (1, 0): "a"}  # what the target wants after these prefixes; "the" after all others
wanted = [WANTS.get(ranks, "the") for ranks in best]
target_token_BN = np.array([[VOCAB.index(name) for name in wanted]])
walk = ops.accept_greedy(batch.token_BN, first_child_N[None], next_sibling_N[None], batch.node_count_B, target_token_BN)
path = walk.path_BN[0][: walk.accept_len_B[0]]

arrows = [f"{word(token)}→{want}" for token, want in zip(tree.token_N, wanted, strict=True)]
fig, ax = plt.subplots(figsize=(9, 2.8), layout="constrained")
plot.tree(numbered, ax, label=arrows.__getitem__, path=path)
ax.set(xlim=(-0.4, 3.4))

print("accepted slots :", path.tolist())
print("accept length  :", walk.accept_len_B[0])
print("committed      :", [word(token) for token in tree.token_N[path[1:]]], "+ bonus", word(walk.bonus_B[0]))
assert [word(token) for token in tree.token_N[path[1:]]] == ["is", "on"]
assert word(walk.bonus_B[0]) == "a"
assert walk.accept_len_B[0] == 3
plt.show()

# %% [markdown]
# The path counts the root, so its length is the number of committed tokens: the root itself was committed before, and
# the bonus takes its place. "a" becomes the root of the next round.
#
# Every committed token is one that the target wants after the tokens before it. The output is the text that the
# target would have written alone; the tree decides only how many passes that takes.
#
# ## 11. A round of the trace
#
# Here is the same position as in section 6, with the chain of the best token at every depth, and with a tree of 24
# nodes. The chain breaks at its third token. The tree holds the sibling that the target wants, and what follows.

# %%
chain, chain_path = kdtree.tree_at(trace, SEQUENCE, ANCHOR, "chain", 7)
bushy, bushy_path = kdtree.tree_at(trace, SEQUENCE, ANCHOR, "ddtree", 24)
print("the text goes on :", bytes(trace.continuation[SEQUENCE, ANCHOR + 1 : ANCHOR + 10].tolist()))
print("chain commits    :", len(chain_path), "tokens")
print("tree commits     :", len(bushy_path), "tokens")
assert (len(chain_path), len(bushy_path)) == (3, 6)

fig, (upper, lower) = plt.subplots(2, 1, figsize=(9, 5.6), layout="constrained", height_ratios=[1, 6])
plot.tree(chain, upper, label=trace.label, path=chain_path)
plot.tree(bushy, lower, label=trace.label, path=bushy_path)
upper.set(xlabel="")
for ax in (upper, lower):
    ax.set(xlim=(-0.5, 7.5))
upper.get_legend().remove()
plt.show()
# %% [markdown]
# ## 12. Batches: padding and node_count
#
# Ops work on batches, and arrays have one shape: $N = B + 1$ slots for every tree. A tree can be smaller. A row of
# log-probs may end early in $-\infty$, "not a candidate", and a short draft has few prefixes. Then the slots from
# `node_count` on are padding. Only `node_count` says so; token 0 is a token like any other.
#
# Three trees of budget 8, of which only the first fills it: the example; two candidates at depth 1 and one below each;
# a single candidate at every depth, which makes a chain. Grey cells are padding.

# %%
three_BLK = np.tile(logprob_LK, (3, 1, 1))
three_BLK[1:, 1:, 1:] = -np.inf
three_BLK[1, 0, 2:] = -np.inf
three_BLK[2, 0, 1:] = -np.inf
three = ops.tree_build([0] * 3, three_BLK, np.tile(token_LK, (3, 1, 1)), budget=BUDGET)
assert three.node_count_B.tolist() == [9, 7, 4]

fig, axes = plt.subplots(4, 1, figsize=(9, 4.8), layout="constrained", sharex=True)
for ax, field in zip(axes, ("token_BN", "parent_BN", "depth_BN", "rank_BN"), strict=True):
    values = getattr(three, field)
    real = np.arange(BUDGET + 1) < three.node_count_B[:, None]
    ax.imshow(real, cmap="Blues", vmin=0, vmax=4, aspect="auto")
    for (b, i), value in np.ndenumerate(values):
        ax.text(i, b, value, ha="center", va="center", color="black" if real[b, i] else GREY)
        if not real[b, i]:
            ax.add_patch(plt.Rectangle((i - 0.5, b - 0.5), 1, 1, fc="#eaeef2", ec="white"))
    ax.set_yticks(range(3), [f"tree {b}, node_count {n}" for b, n in enumerate(three.node_count_B)], fontsize=9)
    ax.set_title(field, fontsize=10, loc="left", family="monospace")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
axes[-1].set_xticks(range(BUDGET + 1))
axes[-1].set_xlabel("slot")
plt.show()

# %% [markdown]
# Padded slots hold token 0 (the pad token), parent -1, depth 0 and rank -1. The token "cat" of slot 0 is number 0 too,
# which is why a count is needed. Padded rows and columns of the mask are False.
#
# ## Things to try
#
# 1. Give the example a fourth word per row, and make $q_1$ flat. At which budget does the first node of depth 3 appear?
# 2. Build the example's tree of budget 8 with `kdtree.builders.get("accum_logp:width=3")`, which adds all children of
#    a node at once. How much less is its `expected_accept_len`? Can it be more, for any budget?
# 3. Change `WANTS` so that the walk takes the whole of the longest path. What is the bonus then?
