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
# # One round, from end to end
#
# A target and a drafter ship with the project: small models that were trained on Python source. This notebook plays
# one DDTree round with them, step by step, with calls that you could write yourself. Then it puts the steps into a
# loop, and checks the loop against `kdtree.speculative` and against a replayed trace.
#
# Why the tree has the shape that it has is in the notebook `01_tree_shapes`, and why one pass over a tree equals plain
# decoding in `03_mla_absorb_and_tree_verification`. The figures are printed, not written in the text, so `PROMPT`
# (0 to 47) and `BUDGET` (1 to 64) below may be changed.

# %%
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the matrices are small: more threads wait for each other

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

import kdtree
from kdtree import DraftTree, Seeded, greedy, ops, plot
from kdtree.draw.labels import visible
from kdtree.record_models import ModelPair
from kdtree.reference.top_k import best_tokens
from kdtree.shipped import tiny_pair, tiny_prompts

PROMPT, BUDGET = 16, 20
BLUE, ORANGE, GREEN, *_ = plot.COLOURS
SKY, PEACH, MINT, PALE, GREY = "#cfe3f1", "#f3c9a5", "#c5e8da", "#eaeef2", "#8c959f"
plt.rcParams |= {"figure.dpi": 100, "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
plt.rcParams["axes.prop_cycle"] = plt.cycler(color=plot.COLOURS)

target, drafter = tiny_pair()
prompt = tiny_prompts()[PROMPT]
V, L = target.config.vocab_size, drafter.draft_len
print(f"target : {target.config.num_hidden_layers} layers, vocabulary {V}")
print(f"drafter: {drafter.weights.config.num_hidden_layers} layers, drafts of L = {L} tokens")

# %% [markdown]
# ## 1. The prompt
#
# A token is a byte. Token 256 begins every text and token 257 is the drafter's mask. In the pictures ␣ is a space and ↵
# a new line.
#
# The last known token is the *root* of the round: the target has not read it yet.


# %%
def sign(token):
    """Return the character that stands for a token."""
    return {10: "↵", 256: "BOS", 257: "MASK"}.get(token) or chr(token)


def text(tokens):
    """Return tokens as text."""
    return bytes(token for token in map(int, tokens) if token < 256).decode(errors="replace")


def strip(ax, y, labels, colours, name="", x=0, size=8, high=0.8):
    """Draw a row of cells with labels."""
    for i, (label, colour) in enumerate(zip(labels, colours, strict=True)):
        ax.add_patch(Rectangle((x + i, y), 1, high, fc=colour, ec="white" if colour != "white" else PALE))
        ax.text(x + i + 0.5, y + high / 2, label, ha="center", va="center", fontsize=size, parse_math=False)
    ax.text(x - 0.3, y + high / 2, name, ha="right", va="center", fontsize=9)


def bare(ax, xlim, ylim):
    """Set the limits of axes that hold cells alone."""
    ax.set(xlim=xlim, ylim=ylim)
    ax.axis("off")


print(text(prompt))
print("-" * 60)
print(f"{len(prompt)} tokens, BOS included")

SHOWN = min(18, len(prompt))
last_T = range(len(prompt) - SHOWN, len(prompt))
colours = [PALE] * (SHOWN - 1) + [PEACH]
fig, ax = plt.subplots(figsize=(9, 1.3), layout="constrained")
strip(ax, 0, [visible(sign(prompt[t])) for t in last_T], colours, "text", size=11)
strip(ax, 1, [str(prompt[t]) for t in last_T], colours, "token")
strip(ax, 2, [str(t) for t in last_T], colours, "position")
ax.text(SHOWN + 0.2, 0.4, "root", color=ORANGE, va="center")
bare(ax, (-2.2, SHOWN + 1.8), (2.9, -0.1))
plt.show()

# %% [markdown]
# ## 2. Prefill
#
# The target reads all tokens but the root, in one pass. Two things remain of each token:
#
# - in the *cache* a row in every layer, which later tokens attend to;
# - its *hidden streams*: the embedding, the output of each layer but the last, and the output of the final norm. The
#   drafter reads some of them (green): they are what it knows of the text.

# %%
cache = target.new_cache(1)
hidden_YTD = target.read(cache, 0, prompt[:-1])
P = int(cache.length_B[0])
session = drafter.session()

print(f"known tokens {len(prompt)}, committed rows of the cache P = {P}")
print("hidden streams (streams, tokens, width):", hidden_YTD.shape)
assert P == len(prompt) - 1 == hidden_YTD.shape[1]

taps = [layer + 1 for layer in drafter.weights.config.target_layer_ids]
rows = [(f"cache, layer {y}", BLUE, 0.35) for y in range(len(cache.kv_YBSX))]
rows += [(f"stream {y}", *((GREEN, 0.5) if y in taps else (GREY, 0.3))) for y in range(len(hidden_YTD))]
fig, ax = plt.subplots(figsize=(9, 2.7), layout="constrained")
strip(ax, 0, [visible(sign(prompt[t])) for t in last_T], colours, "text", size=11, high=1)
for y, (name, colour, alpha) in enumerate(rows, start=1):
    for x in range(SHOWN - 1):
        ax.add_patch(Rectangle((x + 0.05, y + 0.25), 0.9, 0.75, fc=colour, alpha=alpha))
    ax.text(-0.3, y + 0.6, name, ha="right", va="center", fontsize=9)
ax.text(SHOWN - 0.5, len(rows) / 2 + 1, "not read yet", color=ORANGE, ha="center", va="center", rotation=90)
bare(ax, (-3.2, SHOWN + 0.2), (len(rows) + 1.1, -0.1))
plt.show()

# %% [markdown]
# ## 3. The drafter's block
#
# The drafter's input is a block: the root and $L$ masks. In one pass it fills every mask with a distribution over the
# vocabulary. Row $d$ is about the token $d$ places behind the root. It does not know what stands between: these are
# *marginals*.

# %%
logprob_LV = session.propose(prompt, hidden_YTD)
token_LK, logprob_LK = best_tokens(logprob_LV, BUDGET)
assert logprob_LV.shape == (L, V)
assert np.allclose(np.exp(logprob_LV).sum(axis=1), 1, atol=1e-5)

BEST = 8
fig, ax = plt.subplots(figsize=(9, 3.9), layout="constrained")
strip(ax, -1.6, [visible(sign(prompt[-1]))], [PEACH], "block", x=-0.5, size=10, high=0.9)
strip(ax, -1.6, ["mask"] * L, [PALE] * L, x=0.5, size=7, high=0.9)
image = ax.imshow(
    np.exp(logprob_LK[:, :BEST]).T, cmap="Blues", vmin=0, vmax=1, aspect="auto", extent=(0.5, L + 0.5, BEST - 0.5, -0.5)
)
for (d, rank), token in np.ndenumerate(token_LK[:, :BEST]):
    dark = logprob_LK[d, rank] > np.log(0.6)
    ax.text(d + 1, rank, visible(sign(token)), ha="center", va="center", color="white" if dark else "black")
ax.set(xlim=(-0.5, L + 0.5), ylim=(BEST - 0.5, -1.7), xlabel="depth (tokens after the root)", ylabel="rank")
ax.set_xticks(range(L + 1), [f"{d}\n{P + d}" for d in range(L + 1)])
ax.text(-0.7, BEST + 0.42, "position", ha="right", va="center")
ax.set_yticks(range(BEST))
ax.tick_params(length=0)
ax.spines[:].set_visible(False)
fig.colorbar(image, ax=ax, label="probability").outline.set_visible(False)
plt.show()

print("first choices:", repr(text(token_LK[:, 0])))

# %% [markdown]
# The first choices from left to right are what a chain would check. Far from the root they get vaguer.
#
# ## 4. The tree
#
# `ops.tree_build` makes a tree of the most probable prefixes, the root's token above them. Ops are batched, so one
# sequence is a batch of one. On the right of each box stands the probability of its token; the more probable the whole
# path, the darker the box.

# %%
trees = ops.tree_build(prompt[-1:], logprob_LK[None], token_LK[None], BUDGET)
tree = DraftTree.from_batch(trees)
N = tree.node_count

fig, ax = plt.subplots(figsize=(9, 4.6), layout="constrained")
plot.tree(tree, ax, label=sign)
plt.show()
print(f"{tree.budget} nodes; expected accept length, if the drafter is right: {tree.expected_accept_len:.2f} tokens")
print(tree.text(sign))

# %% [markdown]
# The listing has the same tree by *slot*: the number of a node in the pass that comes next. Nodes are numbered from the
# most probable prefix down, so a parent comes before its children.
#
# ## 5. Who sees whom, and where everybody stands
#
# All slots go through the target in one pass. A slot must see what it would see if its path were the text: the prefix,
# its ancestors and itself. And its token must stand where the text would have it:
#
# $$\text{position} = P + \text{depth} .$$
#
# On the left is the mask, a row a slot; the prefix is seen by all, and only its end is drawn. On the right is each
# slot's position: siblings, and cousins, share one. They are candidates for the same place in the text, and the mask
# keeps them apart.

# %%
visible_NN = ops.visibility(trees.parent_BN, trees.node_count_B)[0]
position_N = P + tree.depth_N

TAIL = min(6, P)  # rows of the prefix that the pictures show
seen = np.concatenate([np.full((N, TAIL), 0.4), np.where(visible_NN, 0.9, 0)], axis=1)
slot_signs = [visible(sign(token)) for token in tree.token_N.tolist()]
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4.9), layout="constrained", sharey=True, width_ratios=[5, 2])
left.imshow(seen, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
left.set_xticks(range(TAIL + N), [visible(sign(t)) for t in prompt[P - TAIL : P].tolist()] + slot_signs, fontsize=9)
left.set_yticks(range(N), [f"slot {i}  {name}" for i, name in enumerate(slot_signs)], fontsize=8)
left.set_xticks(np.arange(TAIL + N + 1) - 0.5, minor=True)
left.set_yticks(np.arange(N + 1) - 0.5, minor=True)
left.grid(which="minor", color="white")
left.axvline(TAIL - 0.5, color="black", linewidth=1.2)
left.set_xlabel("rows of the cache: end of the prefix | slots")
for i, name in enumerate(slot_signs):
    right.text(position_N[i], i, name, ha="center", va="center", fontsize=9, parse_math=False)
right.set(xlim=(P - 0.7, position_N.max() + 0.7), xlabel="position")
right.set_xticks(range(P, position_N.max() + 1))
right.grid(axis="x", color=PALE)
for ax in (left, right):
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)
plt.show()

assert [np.flatnonzero(row).tolist() for row in visible_NN] == [tree.path(i).tolist() for i in range(N)]

# %% [markdown]
# ## 6. One pass of the target
#
# `target.verify` runs the slots with these positions and this mask. It returns logits for the token *after* every slot;
# its rows of the cache are written behind the $P$ committed ones and do not count yet. The greedy target's token is the
# argmax.
#
# Each box shows a slot's token, and behind the arrow the token that the target would write after it.

# %%
verified = target.verify(cache, trees)
target_token_N = ops.argmax(verified.logit_BNV[0])
assert verified.logit_BNV.shape == (1, N, V)
assert cache.length_B[0] == P

by_slot = DraftTree(np.arange(N), tree.depth_N, tree.parent_N, tree.rank_N, tree.logw_N)


def sign_and_next(slot):
    """Return a slot's character and the one that the target puts after it."""
    return f"{sign(tree.token_N[slot])}→{sign(target_token_N[slot])}"


fig, ax = plt.subplots(figsize=(9, 4.6), layout="constrained")
plot.tree(by_slot, ax, label=sign_and_next)
plt.show()

# %% [markdown]
# ## 7. The walk
#
# From the root, go to the child that has the target's token, and on from there, until no child has it.
# `ops.retrieve` links each slot to its first child and its next sibling, so the walk is a few lines:

# %%
first_child_BN, next_sibling_BN = links = ops.retrieve(trees.parent_BN, trees.node_count_B)
slot, walked = 0, [0]
while slot != -1:
    wanted = target_token_N[slot]
    child = first_child_BN[0, slot]
    while child != -1 and tree.token_N[child] != wanted:
        child = next_sibling_BN[0, child]
    found = f"child {child}" if child != -1 else "no child has it: the bonus token"
    print(f"slot {slot:2}  {visible(sign(tree.token_N[slot]))}   the target writes {visible(sign(wanted))}   {found}")
    slot = child
    walked += [slot] if slot != -1 else []

walk = ops.accept_greedy(trees.token_BN, *links, trees.node_count_B, target_token_N[None])
accept_len, bonus = int(walk.accept_len_B[0]), int(walk.bonus_B[0])
path_N = walk.path_BN[0, :accept_len]
assert path_N.tolist() == walked

# %% [markdown]
# Where the walk ends, the target has already said how the text goes on: its token there is the *bonus*, drawn in green.
# A round commits the drafts on the path and the bonus. Since the root was committed by the round before, the count is
# that of the path's slots, the root included.

# %%
with_bonus = DraftTree(  # no marginal has proposed the bonus here, so its rank is beyond them and its weight unknown
    *(np.append(getattr(tree, name), value) for name, value in (("token_N", bonus), ("depth_N", accept_len))),
    np.append(tree.parent_N, path_N[-1]),
    np.append(tree.rank_N, V),
    np.append(tree.logw_N, np.nan),
)
fig, ax = plt.subplots(figsize=(9, 4.8), layout="constrained")
plot.tree(with_bonus, ax, label=sign, path=path_N)
ax.texts[2 * N].get_bbox_patch().set(fc=MINT, ec=GREEN, lw=2)
plt.show()

committed = target_token_N[path_N]
assert committed.tolist() == [*tree.token_N[path_N[1:]].tolist(), bonus]
chain = kdtree.speculative(target, drafter, [prompt], budget=L, max_new_tokens=L + 1, builder="chain").sequences[0]
print("accepted slots :", path_N.tolist())
print("committed      :", repr(text(committed)), f"= {accept_len} tokens, the bonus included")
print(f"the chain of the same drafter would have committed {chain.accept_lens[0]}")

# %% [markdown]
# ## 8. Compaction
#
# The pass has written a row of the cache for every slot. Those of the path are already right: a row depends on its
# token, its position and what it saw, and for the path all three are those of the text. They only stand at the wrong
# places, between rows of refused slots. So they are *gathered* into a temporary array, and *scattered* to the places
# behind the prefix. Nothing is computed again.

# %%
before_YSX = cache.kv_YBSX[:, 0, : P + N].copy()
cache.commit(walk.path_BN, walk.accept_len_B)
length = int(cache.length_B[0])

prefix_signs = [visible(sign(token)) for token in prompt[P - TAIL : P].tolist()]
path_signs = [slot_signs[i] for i in path_N]
on_path = [PEACH if i in path_N else PALE for i in range(N)]
fig, ax = plt.subplots(figsize=(9, 2.9), layout="constrained")
strip(ax, 0, prefix_signs + slot_signs, [SKY] * TAIL + on_path, "after the pass", size=10)
strip(ax, 2, path_signs, [PEACH] * accept_len, "gathered", x=TAIL, size=10)
strip(ax, 4, prefix_signs + path_signs, [SKY] * TAIL + [PEACH] * accept_len, "after the commit", size=10)
strip(ax, 4, [""] * (N - accept_len), ["white"] * (N - accept_len), x=TAIL + accept_len)
for j, i in enumerate(path_N):
    for start, end in (((TAIL + i, 0.8), (TAIL + j, 2)), ((TAIL + j, 2.8), (TAIL + j, 4))):
        arrow = {"arrowstyle": "-|>", "color": ORANGE, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (end[0] + 0.5, end[1]), (start[0] + 0.5, start[1]), arrowprops=arrow)
for x in (0, TAIL - 1, TAIL, TAIL + accept_len - 1, TAIL + N - 1):
    ax.text(x + 0.5, 5.1, P - TAIL + x, ha="center", va="center", fontsize=8)
ax.text(TAIL + (accept_len + N) / 2, 4.4, "free", ha="center", va="center", fontsize=8, color=GREY)
ax.text(-0.3, 5.1, "row", ha="right", va="center", fontsize=9)
bare(ax, (-4, TAIL + N + 0.2), (5.4, -0.1))
plt.show()
print(f"committed rows: {P} before, {length} after; known tokens: {len(prompt) + accept_len}")
assert length == P + accept_len

# %% [markdown]
# A path ascends, so row $j$ moves to the left or stays. A copy row by row in order would be safe too; one that moves
# all rows at once must gather first, since places that are written are also read.
#
# Are the compacted rows those of plain decoding? Plain decoding reads the same tokens one by one, each as a tree of a
# root alone. On this backend no row's bits depend on other rows of the pass, so the two must agree bit for bit, in the
# cache and in the streams.


# %%
def plain_step(cache, token):
    """Read one token, commit it, and return what the pass computed."""
    nothing = np.zeros((1, 0, 0))
    result = target.verify(cache, ops.tree_build([token], nothing, nothing.astype(int), 0))
    cache.commit(np.array([[0]]), np.array([1]))
    return result


plain_cache = target.new_cache(1)
target.read(plain_cache, 0, prompt[:-1])
plain = [plain_step(plain_cache, int(token)) for token in tree.token_N[path_N]]

assert np.array_equal(cache.kv_YBSX[:, 0, :length], plain_cache.kv_YBSX[:, 0, :length])
moved = bool((path_N != np.arange(accept_len)).any())
assert np.array_equal(before_YSX[:, :length], plain_cache.kv_YBSX[:, 0, :length]) != moved
assert [int(step.logit_BNV[0, 0].argmax()) for step in plain] == committed.tolist()
assert np.array_equal(verified.hidden_YBND[:, 0, path_N], np.stack([step.hidden_YBND[:, 0, 0] for step in plain], 1))
print(f"{len(cache.kv_YBSX)} layers x {length} rows x {cache.kv_YBSX.shape[3]} numbers: bit for bit those of plain")
print(f"passes of the target: 1 with the tree, {len(plain)} without")

# %% [markdown]
# ## 9. Into the next round
#
# The bonus is the next root: known, but not read. The drafter gets the hidden streams of the path's slots, the old root
# among them, and makes context rows of them. It gets nothing of refused slots. So after every round the target's cache
# and, at the next proposal, the drafter's context hold all known tokens but the last.

# %%
known = np.concatenate([prompt, committed])
new_hidden_YTD = verified.hidden_YBND[:, 0, path_N]
print("streams for the drafter (streams, tokens, width):", new_hidden_YTD.shape)


def draw_state(ax, known, read, kept, title):
    """Draw the known tokens from `first` on, and what the cache and the drafter hold of them."""
    shown = range(first, len(known))
    colours = [PALE] * (len(shown) - 1) + [PEACH]
    strip(ax, 0, [visible(sign(known[t])) for t in shown], colours, "known", size=10)
    strip(ax, 1, [""] * len(shown), [SKY if t < kept else "white" for t in shown], "cache")
    strip(ax, 2, [""] * len(shown), [MINT if t < read else "white" for t in shown], "drafter's context")
    ax.set_title(title, fontsize=10, loc="left")
    bare(ax, (-4, end - first + 0.2), (2.9, -0.1))


first, end = max(0, P - 10), len(known)
fig, axes = plt.subplots(3, 1, figsize=(9, 3.9), layout="constrained")
draw_state(axes[0], prompt, P, P, "round 1, when the drafter has proposed: the root is orange")
draw_state(axes[1], known, P, length, "after the commit")
draw_state(axes[2], known, length, length, "round 2, when the drafter has proposed")

proposed_LV = session.propose(known, new_hidden_YTD)
fresh_LV = drafter.session().propose(known, np.concatenate([hidden_YTD, new_hidden_YTD], axis=1))
assert np.array_equal(proposed_LV, fresh_LV)
plt.show()

# %% [markdown]
# The assertion says that the drafter's session has no other memory: a fresh one that gets all streams at once proposes
# the same, bit for bit. (The shipped drafter is exact: it reads streams token by token, however many it gets.)
#
# ## 10. The loop
#
# That was all. The same calls in a loop, with the sampler as an argument:


# %%
def decode(prompt, budget, max_new_tokens, sampler=greedy):
    """Return the new tokens, and how many of them each round committed."""
    known, end, accept_lens = prompt, len(prompt) + max_new_tokens, []
    cache, session = target.new_cache(1), drafter.session()
    hidden_YTD = target.read(cache, 0, known[:-1])
    while len(known) < end:
        token_LK, logprob_LK = best_tokens(session.propose(known, hidden_YTD), budget)
        trees = ops.tree_build(known[-1:], logprob_LK[None], token_LK[None], budget)
        verified = target.verify(cache, trees)
        token_N = sampler(verified.logit_BNV[0], cache.length_B[0] + trees.depth_BN[0] + 1)
        links = ops.retrieve(trees.parent_BN, trees.node_count_B)
        walk = ops.accept_greedy(trees.token_BN, *links, trees.node_count_B, token_N[None])
        path_N = walk.path_BN[0, : walk.accept_len_B[0]]
        cache.commit(walk.path_BN, walk.accept_len_B)
        hidden_YTD = verified.hidden_YBND[:, 0, path_N]
        new = token_N[path_N][: end - len(known)]
        known = np.concatenate([known, new])
        accept_lens.append(len(new))
    return known[len(prompt) :].tolist(), accept_lens


NEW = 128
tokens, accept_lens = decode(prompt, BUDGET, NEW)
assert tokens[:accept_len] == committed.tolist()
assert accept_lens[0] == accept_len

TINTS = SKY, PEACH, MINT, "#ecd3e1", "#f5deaa"
WIDE, BEFORE = 72, 60  # columns; tokens of the prompt


def draw_rounds(tokens, accept_lens):
    """Draw the end of the prompt and the new text, each round in a colour, its bonus underlined."""
    shown = [*prompt[-BEFORE:].tolist(), *tokens]
    places, x, y = [], 0, 0
    for token in shown:
        places.append((x, y))
        x, y = (0, y + 1) if token == 10 or x + 1 == WIDE else (x + 1, y)
    ax = plt.subplots(figsize=(9, 0.28 * (y + 1)), layout="constrained")[1]
    round_T = np.repeat(np.arange(len(accept_lens)), accept_lens)
    for (x, y), token, new in zip(places, shown, range(len(tokens) - len(shown), len(tokens)), strict=True):
        name = visible(sign(token))
        if new < 0:
            name = name.replace("␣", " ")
        else:
            ax.add_patch(Rectangle((x, y), 1, 0.9, fc=TINTS[round_T[new] % len(TINTS)]))
        if 0 <= new < len(tokens) - 1 and round_T[new] != round_T[new + 1]:
            ax.plot([x + 0.1, x + 0.9], [y + 0.86] * 2, color="black", linewidth=1.5)
        look = {"family": "monospace", "color": "black" if new >= 0 else GREY, "parse_math": False}
        ax.text(x + 0.5, y + 0.45, name, ha="center", va="center", fontsize=10, **look)
    bare(ax, (0, WIDE), (places[-1][1] + 1, 0))


draw_rounds(tokens, accept_lens)
plt.show()

fig, ax = plt.subplots(figsize=(9, 2.2), layout="constrained")
rounds = np.arange(1, len(accept_lens) + 1)
ax.bar(rounds, accept_lens, color=[TINTS[(r - 1) % len(TINTS)] for r in rounds], edgecolor=GREY, linewidth=0.5)
ax.set(xlabel="round", ylabel="accept length (tokens)", xticks=rounds)
ax.tick_params(axis="x", labelsize=8)
plt.show()
print(f"{len(tokens)} tokens in {len(accept_lens)} passes of the target: {len(tokens) / len(accept_lens):.2f} a round")

# %% [markdown]
# A colour is a round; the underlined character is its bonus, where the drafts ended and the target went on by itself.
# The last round is cut at the wanted number of tokens.
#
# `kdtree.speculative` does this for a batch, with checks, stop tokens, regard to the target's last position, and the
# faster backend for the ops. Tokens and accept lengths are the same, and the tokens are those of plain decoding.

# %%
live = kdtree.speculative(target, drafter, [prompt], budget=BUDGET, max_new_tokens=NEW)
assert list(live.sequences[0].tokens) == tokens
assert list(live.sequences[0].accept_lens) == accept_lens
assert live.target_passes == len(accept_lens)

without = kdtree.autoregressive(target, [prompt], max_new_tokens=NEW)
assert list(without.sequences[0].tokens) == tokens
print(f"passes of the target: {live.target_passes} with trees of {BUDGET} nodes, {without.target_passes} without")

# %% [markdown]
# ## 11. Sampling
#
# At a temperature $T > 0$ the target draws its tokens. `Seeded` draws with noise that depends on the seed and on the
# absolute position alone,
#
# $$\text{token} = \operatorname{argmax} (\text{logits} / T + G_{\text{position}}) ,$$
#
# with Gumbel noise $G$. So the target's token after a slot is again a function of the slot's path. Nothing else in the
# round changes, and the tokens are those that plain decoding would have drawn. The token after slot $i$ goes to
# position $P + \text{depth}_i + 1$, which is what the loop hands to the sampler.

# %%
sampler = Seeded(temperature=0.7, seed=1)
sampled, sampled_lens = decode(prompt, BUDGET, NEW, sampler)
plain_draws = kdtree.autoregressive(target, [prompt], max_new_tokens=NEW, sampler=sampler)
assert sampled == list(plain_draws.sequences[0].tokens)

draw_rounds(sampled, sampled_lens)
plt.show()
print(f"T = {sampler.temperature}: {NEW} tokens in {len(sampled_lens)} passes; greedy: {len(accept_lens)}")

# %% [markdown]
# ## 12. What the budget buys
#
# How many passes does the target need for the same tokens? The chain of the same drafter is its first choices alone. It
# has at most $L$ nodes, so a larger budget does nothing for it.

# %%
BUDGETS = 1, 4, L, 64
HEATS = {"T = 0": (greedy, tokens), f"T = {sampler.temperature}": (sampler, sampled)}
passes = {}
for heat, (chosen, expected) in HEATS.items():
    for builder in ("chain", "ddtree"):
        for budget in BUDGETS:
            if builder == "chain" and budget > L:
                passes[heat, builder, budget] = passes[heat, builder, L]
                continue
            run = kdtree.speculative(
                target, drafter, [prompt], budget=budget, max_new_tokens=NEW, sampler=chosen, builder=builder
            )
            assert list(run.sequences[0].tokens) == expected
            passes[heat, builder, budget] = run.target_passes

print(f"passes of the target for {NEW} tokens; {NEW} without a drafter")
columns = [(heat, builder) for heat in HEATS for builder in ("chain", "ddtree")]
print("budget", *(f"{f'{heat}, {builder}':>17}" for heat, builder in columns))
for budget in BUDGETS:
    print(f"{budget:6}", *(f"{passes[heat, builder, budget]:17}" for heat, builder in columns))

# %% [markdown]
# This is one text of one prompt. Passes are not time either: a pass over more slots takes longer, as the notebook
# `02_accept_length_vs_budget` discusses.
#
# ## 13. The same rounds, without the models
#
# The target's text does not depend on the budget, and a round's tree depends on the drafter's marginals at its root
# alone. So whoever knows the text and the marginals at each of its tokens knows all rounds at all budgets. That is a
# *trace*: `kdtree.record` writes one, and `kdtree.replay` plays it.
#
# `ModelPair` turns target and drafter into the two functions that `record` asks. A trace's first root is the first
# token that the target wrote, so the live run that it predicts has that token in its prompt. Rounds are replayed as
# long as the drafter's whole view is recorded: up to $L$ tokens before the end.

# %%
ANCHORS = 64
pair = ModelPair(target, drafter)
trace = kdtree.record(pair.drafter, pair.target, [prompt], anchors=ANCHORS, K=64)
assert trace.continuation[0].tolist() == tokens[:ANCHORS]

replayed_budgets = range(1, 65)
replayed = kdtree.replay(trace, "ddtree", replayed_budgets)
LIVE = sorted({2, 8, BUDGET, 64})
longer = np.append(prompt, trace.continuation[0, 0])
for budget in LIVE:
    run = kdtree.speculative(target, drafter, [longer], budget=budget, max_new_tokens=ANCHORS - 1)
    predicted = replayed.accept_lens[budget][0].tolist()
    assert list(run.sequences[0].accept_lens[: len(predicted)]) == predicted
    assert list(run.sequences[0].tokens) == trace.continuation[0, 1:].tolist()
assert sum(replayed.flagged.values()) == 0
for budget in LIVE:
    print(f"B = {budget:2}: replayed = live:", *replayed.accept_lens[budget][0])

# %% [markdown]
# Equal, round for round. One replay gives every budget: in the picture, the rounds of some budgets along the text, and
# the accept length at all of them.

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", width_ratios=[5, 3])
for y, budget in enumerate(LIVE):
    ends = np.cumsum([0, *replayed.accept_lens[budget][0]])
    for r, (start, end) in enumerate(pairwise(ends)):
        left.add_patch(Rectangle((start, y - 0.4), end - start, 0.8, fc=TINTS[r % len(TINTS)], ec="white"))
        left.text((start + end) / 2, y, end - start, ha="center", va="center", fontsize=8)
left.set_yticks(range(len(LIVE)), [f"B = {budget}" for budget in LIVE])
left.set(xlim=(0, 1 + max(sum(replayed.accept_lens[budget][0]) for budget in LIVE)), ylim=(len(LIVE) - 0.5, -0.5))
left.set(xlabel="tokens behind the first root; a box is a round")
left.tick_params(axis="y", length=0)
left.spines["left"].set_visible(False)
right.plot(replayed_budgets, replayed.tau.values(), label="replayed")
right.plot(LIVE, [replayed.tau[budget] for budget in LIVE], "o", color=ORANGE, label="and compared live")
right.set(xlabel="node budget B", ylabel="accept length (tokens per round)", ylim=(1, None))
right.legend(frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# A single sequence is too little to compare budgets: the curve goes up and down, since a round that ends elsewhere puts
# the next root elsewhere. `kdtree.Trace.shipped_names()` lists recorded traces of many sequences.
#
# ## Things to try
#
# 1. Set `PROMPT` to another number from 0 to 47, or `prompt` to `[256, *b"..."]` with code of your own. Where does the
#    tree gain most over the chain?
# 2. Break a step of `decode`: positions without $+ 1$ for the sampler, streams of slots 0, 1, 2, ... instead of the
#    path's, a commit of the wrong rows. Which mistakes change tokens, and which only accept lengths?
# 3. Let `decode` stop at a new line. What has to be cut, and what must the cache hold then?
