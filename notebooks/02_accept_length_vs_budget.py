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
# # Accept length against budget
#
# How many tokens does a round commit, and how does that grow with the number of nodes that the target verifies? This
# notebook measures it on a recorded trace, for three ways to build a tree, without running a model. The notebook
# `01_tree_shapes` explains the trees.
#
# The accept length of a round counts the bonus token: $\tau = 1 + \text{accepted drafts}$. A round without any draft
# commits 1 token.
#
# Every number in the text is asserted in a cell beside it.

# %%
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from ipywidgets import IntSlider, SelectionSlider, interact

import kdtree
from kdtree import ops, plot

BLUE, ORANGE, GREEN, *_ = plot.COLOURS
GREY = "#8c959f"
plt.rcParams |= {"figure.dpi": 100, "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
plt.rcParams["axes.prop_cycle"] = plt.cycler(color=plot.COLOURS)

# %% [markdown]
# ## 1. A dense trace
#
# The shipped trace was recorded with a small target that continues Python source, byte by byte, and a block-diffusion
# drafter. For each sequence it stores the target's own continuation. At *every* position $t$ of it, the *anchors*, it
# also stores what the drafter proposes with continuation[t] as the root: the best $K$ tokens and their log-probs for
# each of the next $L$ positions.

# %%
trace = kdtree.Trace.shipped("pilot_t05")
S, T, L, K = trace.topk_ids.shape
assert (S, T, L, K) == (24, 96, 7, 64)

print(f"{S} sequences x {T} anchors, drafts of L = {L} tokens, K = {K} of {trace.vocab_size} tokens per row")
for key in ("target", "drafter", "decoding", "prompts"):
    print(f"{key:9}: {trace.metadata[key]}")
print()
for s in (2, 5, 7, 9, 14):
    print(f"sequence {s:2}: {bytes(trace.continuation[s, :64].tolist())}")

spaces = np.mean(trace.continuation[:, :T] == ord(" "))
assert 0.4 < spaces < 0.45
assert set(trace.continuation[7, 1:T].tolist()) == {ord(" ")}

# %% [markdown]
# The target is tiny, and its text shows it: more than 40% of the bytes are spaces, and sequence 7 is nothing else after
# its first byte. Such runs are easy to draft, and the figures below are those of this text.
#
# Here is a part of a sequence as the trace holds it. A column is an anchor: the byte below it is the root. The cell at
# depth $d$ shows the rank that the drafter gave to the byte that the target did write $d$ places later. Rank 0 is the
# drafter's first choice. A column of zeros from the bottom up is a run of right guesses.

# %%
ANCHORS = T - L  # where the drafter's whole view lies inside the continuation
anchor_T, depth_L = np.arange(ANCHORS), np.arange(1, L + 1)
truth_STL = trace.continuation[:, anchor_T[:, None] + depth_L]
is_truth_STLK = trace.topk_ids[:, :ANCHORS] == truth_STL[..., None]
rank_STL = np.where(is_truth_STLK.any(axis=-1), is_truth_STLK.argmax(axis=-1), K)  # K: not among the best K

SEQUENCE, SHOWN = 9, slice(4, 48)
shown_TL = rank_STL[SEQUENCE, SHOWN]
labels = [trace.label(int(token)).replace(" ", "␣").replace("\n", "\\n") for token in trace.continuation[SEQUENCE]]

fig, ax = plt.subplots(figsize=(9, 2.4), layout="constrained")
ax.imshow(np.log2(1 + shown_TL.T), cmap="Blues_r", vmin=-1, vmax=6, aspect="auto", origin="lower")
for (t, d), rank in np.ndenumerate(shown_TL):
    ax.text(t, d, rank, ha="center", va="center", fontsize=7, color="white" if rank < 3 else "black")
ax.set_xticks(range(len(shown_TL)), labels[SHOWN], fontsize=8)
ax.set_yticks(range(L), depth_L, fontsize=8)
ax.tick_params(length=0)
ax.spines[:].set_visible(False)
ax.set(xlabel="anchor (the byte that is the root)", ylabel="depth d")
ax.set_title("rank of the byte that the target wrote", fontsize=10)
plt.show()

# %% [markdown]
# The whole trace, by depth: how probable the drafter holds its first choice on average, how often that is right, and
# how often the target's byte is among the best $K$. The drafter is less sure and less often right at larger depths.

# %%
stated_L = np.exp(trace.topk_log_probs[:, :ANCHORS, :, 0].astype(float)).mean(axis=(0, 1))
right_L = (rank_STL == 0).mean(axis=(0, 1))
recorded_L = (rank_STL < K).mean(axis=(0, 1))
assert right_L[0] == right_L.max()
assert right_L[-1] == right_L.min()

fig, ax = plt.subplots(figsize=(9, 2.8), layout="constrained")
ax.plot(depth_L, recorded_L, "D-.", color=GREEN, label=f"target's byte is among the best {K}")
ax.plot(depth_L, stated_L, "o-", label="first choice: stated probability")
ax.plot(depth_L, right_L, "s--", label="first choice: right")
ax.set(xlabel="depth d (tokens after the root)", ylabel="mean over anchors", ylim=(0, 1.05))
ax.legend(frameon=False, loc="lower left", ncols=3, fontsize=9)
plt.show()

# %% [markdown]
# ## 2. Why replay is exact
#
# In a live run a round starts at some position $t$ of the target's text. The drafter sees the text up to $t$. The
# target checks a tree and commits the longest path that it would have written itself, plus the bonus. So the run's
# text is the target's own continuation, whatever the tree, and every round starts at a position of it.
#
# The walk down a tree asks for the target's token only after prefixes that it has accepted, which are prefixes of the
# continuation. The answer is the next token of the continuation. Nothing else about the target is needed. This holds
# for greedy decoding, and for sampling whose randomness is fixed by seed and position, as here.
#
# Both questions, what the drafter proposes at $t$ and what the target wants there, are answered by the trace for every
# $t$. So the rounds of *any* tree builder at *any* budget can be replayed, and they are those of a live run.
#
# A replay is a short loop. `kdtree.replay` gives the same rounds.


# %%
def rounds_of(sequence, builder, budget):
    """Return (anchor, accept length) of each round of a sequence."""
    rounds, t = [], 0
    while t < T - L:
        _, path = kdtree.tree_at(trace, sequence, t, builder, budget)
        rounds.append((t, len(path)))
        t += len(path)
    return rounds


BUDGETS = [1, 2, 4, 7, 8, 16, 32, 64, 128, 256]
results = {name: kdtree.replay(trace, name, BUDGETS) for name in ("ddtree", "chain", "accum_logp:width=8")}
played = {"chain": rounds_of(SEQUENCE, "chain", 7), "ddtree": rounds_of(SEQUENCE, "ddtree", 64)}
for name, budget in (("chain", 7), ("ddtree", 64)):
    assert [length for _, length in played[name]] == results[name].accept_lens[budget][SEQUENCE].tolist()

fig, ax = plt.subplots(figsize=(9, 1.9), layout="constrained")
rows = {
    "no draft": [(t, 1) for t in range(ANCHORS)],
    "chain, B = 7": played["chain"],
    "ddtree, B = 64": played["ddtree"],
}
for y, rounds in enumerate(rows.values()):
    for t, length in rounds:
        if t < 62:
            ax.barh(y, min(length, 62 - t) - 0.15, left=t + 0.575, height=0.7, color=(GREY, ORANGE, BLUE)[y])
ax.set_yticks(range(3), [f"{name}: {len(rounds)} rounds" for name, rounds in rows.items()])
ax.set_xticks(range(1, 62), labels[1:62], fontsize=7)
ax.invert_yaxis()
ax.tick_params(length=0)
ax.spines[:].set_visible(False)
ax.set(xlim=(0, 62), xlabel="continuation (bytes); a bar is what one round commits")
plt.show()

# %% [markdown]
# A slider for the position and one for the budget show the tree of any anchor of this sequence, with the path that the
# target accepts.


# %%
def show(anchor, budget):
    """Draw the tree of one anchor, and what the target accepts of it."""
    tree, path = kdtree.tree_at(trace, SEQUENCE, anchor, "ddtree", budget)
    plot.tree(tree, label=trace.label, path=path)
    plt.show()


_ = interact(show, anchor=IntSlider(30, 0, ANCHORS - 1), budget=IntSlider(12, 0, 64))

# %% [markdown]
# ## 3. Accept length against budget
#
# Three builders get the same marginals:
#
# - **chain**: the first choice at every depth, at most $L$ nodes;
# - **ddtree**: the $B$ most probable prefixes;
# - **accum_logp:width=8**, a rule of JetSpec: take the most probable node, add its 8 best children at once, repeat.
#
# The bands are 95% bootstrap intervals over the 24 sequences.

# %%
fig, ax = plt.subplots(figsize=(9, 4.5), layout="constrained")
plot.accept_curve(results, ax)
ax.axvline(L, color=GREY, linewidth=0.8, linestyle=":")
ax.annotate("B = L", (L, 1.05), xytext=(-4, 0), textcoords="offset points", color=GREY, ha="right")
plt.show()

print(f"{'budget':>20}", *(f"{budget:6}" for budget in BUDGETS))
for name, result in results.items():
    print(f"{name:>20}", *(f"{tau:6.3f}" for tau in result.tau.values()))

tau = {name: result.tau for name, result in results.items()}
assert round(tau["chain"][7], 4) == round(tau["chain"][256], 4) == 2.7985
assert [round(tau["ddtree"][budget], 4) for budget in (7, 64, 256)] == [3.2044, 4.1361, 4.6300]
assert all(tau["ddtree"][b] >= max(tau["chain"][b], tau["accum_logp:width=8"][b]) for b in BUDGETS)
assert tau["accum_logp:width=8"][16] < tau["chain"][16]
assert tau["accum_logp:width=8"][32] > tau["chain"][32]

# %% [markdown]
# The chain is flat from $B = 7$ on, since it has no more nodes to add: 2.80 tokens per round. The tree goes on: 3.20 at
# $B = 7$, 4.14 at 64 and 4.63 at 256. It is nowhere below the others on this trace.
#
# The JetSpec rule spends its first 8 nodes on depth 1, so it starts slowly: at $B = 16$ it is below the chain, at 32
# above. Adding all children at once takes improbable nodes before probable ones.
#
# The intervals are wide because 24 short sequences differ much, but they share the sequences: a builder that is better
# on the same text is better by more than the overlap of the bands suggests (section 9).
#
# ## 4. Pooled and macro
#
# There are two means. **Pooled** $\tau$ is the mean over all rounds: tokens committed over passes of the
# target. **Macro** $\tau$, the figure of the paper, is the mean over sequences of their means. Easy sequences have few,
# long rounds, so they weigh less in the pooled mean.

# %%
B = 64
mean_S = np.array([lengths.mean() for lengths in results["ddtree"].accept_lens[B]])
rounds_S = np.array([len(lengths) for lengths in results["ddtree"].accept_lens[B]])
pooled, macro = results["ddtree"].tau[B], results["ddtree"].macro_tau[B]
assert np.isclose(pooled, (mean_S * rounds_S).sum() / rounds_S.sum())
assert np.isclose(macro, mean_S.mean())
assert round(pooled, 2) == 4.14
assert round(macro, 2) == 4.43
assert all(results["ddtree"].macro_tau[b] > results["ddtree"].tau[b] for b in BUDGETS)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.scatter(rounds_S, mean_S, color=BLUE, alpha=0.7, zorder=2)
for value, name, colour, style in ((pooled, "pooled", ORANGE, "--"), (macro, "macro", GREEN, "-.")):
    left.axhline(value, color=colour, linestyle=style, label=f"{name} {value:.2f}")
left.set(xlabel="rounds of the sequence", ylabel="its accept length\n(tokens per round)", xticks=range(12, 31, 3))
left.set_title(f"{S} sequences, B = {B}", fontsize=10)
left.legend(frameon=False)
for name, style, colour in (("ddtree", "o-", BLUE), ("chain", "s--", ORANGE)):
    right.plot(BUDGETS, results[name].macro_tau.values(), style, ms=4, color=colour, label=f"{name}, macro")
    right.plot(BUDGETS, results[name].tau.values(), style, ms=4, color=colour, alpha=0.4, label=f"{name}, pooled")
right.set_xscale("log", base=2)
right.set_xticks(BUDGETS[::2], BUDGETS[::2])
right.set(xlabel="node budget", ylabel="accept length\n(tokens per round)")
right.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# At $B = 64$ pooled $\tau$ is 4.14 and macro $\tau$ 4.43. Macro is larger at every budget here. The pooled figure says
# how many passes a workload of these sequences costs. A comparison must not mix the two.
#
# ## 5. The rounds behind the mean

# %%
bins = np.arange(1, L + 3)


def draw_histogram(ax, budget):
    """Draw the share of rounds of each accept length, chain beside tree."""
    for name, label, side, colour in (("chain", "chain", -0.2, ORANGE), ("ddtree", f"ddtree, B = {budget}", 0.2, BLUE)):
        lengths = np.concatenate(results[name].accept_lens[budget])
        share = np.histogram(lengths, bins)[0] / len(lengths)
        ax.bar(bins[:-1] + side, 100 * share, 0.4, color=colour, label=label)
    ax.set(xlabel="accept length of a round (tokens)", ylabel="rounds (%)", xticks=bins[:-1], ylim=(0, 50))
    ax.legend(frameon=False)


fig, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained", sharey=True)
for ax, budget in zip(axes, (7, 64, 256), strict=True):
    draw_histogram(ax, budget)
    ax.set_ylabel(ax.get_ylabel() if budget == 7 else "")
plt.show()

ones = {name: np.mean(np.concatenate(results[name].accept_lens[64]) == 1) for name in ("chain", "ddtree")}
full = {name: np.mean(np.concatenate(results[name].accept_lens[64]) == L + 1) for name in ("chain", "ddtree")}
print("rounds that accept no draft  :", {name: f"{share:.1%}" for name, share in ones.items()})
print("rounds that accept all L     :", {name: f"{share:.1%}" for name, share in full.items()})
assert ones["ddtree"] < ones["chain"] / 4
assert full["ddtree"] > full["chain"]

# %% [markdown]
# The tree gains at both ends. Rounds that accept no draft become rare: at $B = 64$ they are less than a quarter as
# frequent as with the chain, since the second, third or tenth choice at depth 1 is a node too. And more rounds take
# the whole block of $L$ tokens, plus the bonus, which is the most that a round can commit. With a running kernel, the
# slider shows the other budgets.


# %%
def show_histogram(budget):
    """Draw the histogram at one budget."""
    draw_histogram(plt.subplots(figsize=(7, 3), layout="constrained")[1], budget)
    plt.show()


_ = interact(show_histogram, budget=SelectionSlider(options=BUDGETS, value=16))

# %% [markdown]
# ## 6. What K limits: flagged rounds
#
# A trace holds only the best $K$ tokens of a row. Rank $r$ enters a tree only after ranks $0$ to $r - 1$ beside it, so
# a budget $B$ never reaches beyond rank $B - 1$: with $K \ge B$ a replay is exact. With $K < B$ a tree that took rank
# $K - 1$ might have gone on to a rank that was not recorded. Such a round is *flagged*: a trace with more ranks might
# have played it differently.
#
# Here the trace is cut to fewer ranks.

# %%
cut = {}
for k in (1, 2, 4, 8, 16, 64):
    fewer = replace(trace, topk_ids=trace.topk_ids[..., :k], topk_log_probs=trace.topk_log_probs[..., :k])
    cut[k] = kdtree.replay(fewer, "ddtree", BUDGETS)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for (k, result), style in zip(cut.items(), ("o:", "s-.", "D--", "^:", "v-.", "o-"), strict=True):
    flagged = [100 * result.flagged[b] / result.rounds[b] for b in BUDGETS]
    left.plot(BUDGETS, result.tau.values(), style, ms=4, label=f"K = {k}")
    right.plot(BUDGETS, flagged, style, ms=4)
for ax in (left, right):
    ax.set_xscale("log", base=2)
    ax.set_xticks(BUDGETS[::2], BUDGETS[::2])
    ax.set_xlabel("node budget")
left.set_ylabel("accept length (tokens per round)")
left.legend(frameon=False, fontsize=8)
right.set_ylabel("flagged rounds (%)")
plt.show()

assert cut[1].tau == results["chain"].tau  # with one candidate a depth, the tree is the chain
assert all(cut[k].flagged[b] == 0 for k in cut for b in BUDGETS if b <= k)
assert all(cut[k].tau[b] == cut[64].tau[b] for k in cut for b in BUDGETS if b <= k)
assert (cut[64].flagged[128], cut[64].flagged[256], cut[64].rounds[256]) == (0, 2, 473)
print("flagged with K = 64:", cut[64].flagged)

# %% [markdown]
# With $K = 1$ the tree is the chain. With the recorded $K = 64$, no round is flagged up to $B = 128$, and 2 of 473 are
# at $B = 256$. Where no round is flagged the curve is exact. The curves of small $K$ can leave the exact one where
# flags begin.
#
# ## 7. Is the drafter calibrated?
#
# The surrogate, the sum of $q$ over the tree, promises an accept length before the target has spoken. It is right if
# the continuation behaves like a draw from $Q$. Since the trace has all anchors, the promise can be compared with what
# came: here for the trees of $B = 64$ at every anchor, built in one batch.

# %%
B = 64
s_X, t_X = np.divmod(np.arange(S * ANCHORS), ANCHORS)
trees = ops.tree_build.on("numba")(
    trace.continuation[s_X, t_X], trace.topk_log_probs[s_X, t_X], trace.topk_ids[s_X, t_X], B
)
links = ops.retrieve.on("numba")(trees.parent_BN, trees.node_count_B)
target_XN = trace.continuation[s_X[:, None], t_X[:, None] + 1 + trees.depth_BN]
achieved_X = ops.accept_greedy.on("numba")(trees.token_BN, *links, trees.node_count_B, target_XN).accept_len_B
q_XN = np.exp(trees.logw_BN)
expected_X = q_XN.sum(axis=1)

start_X = np.zeros(S * ANCHORS, bool)  # anchors at which a round of the replay starts
for s, lengths in enumerate(results["ddtree"].accept_lens[B]):
    start_X[s * ANCHORS + np.cumsum([0, *lengths[:-1]])] = True
assert np.isclose(achieved_X[start_X].mean(), results["ddtree"].tau[B])

promised_L = [(q_XN * (trees.depth_BN == d)).sum(axis=1).mean() for d in depth_L]
kept_L = [(achieved_X > d).mean() for d in depth_L]

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
tenth_X = np.argsort(np.argsort(expected_X, kind="stable")) * 10 // len(expected_X)
means = [(expected_X[tenth_X == g].mean(), achieved_X[tenth_X == g].mean()) for g in range(10)]
spread_X = np.random.default_rng(0).uniform(-0.3, 0.3, len(achieved_X))
left.plot([1, L + 1], [1, L + 1], color=GREY, linewidth=1)
left.plot(expected_X, achieved_X + spread_X, ".", color=BLUE, ms=3, alpha=0.25, mew=0)
left.plot(*np.transpose(means), "o", color="black", label="mean of a tenth of the anchors")
left.set(xlabel="expected accept length (sum of q)", ylabel="achieved accept length\n(dots are spread a little)")
left.legend(frameon=False, loc="upper left", fontsize=9)
right.plot(depth_L, promised_L, "o-", label="promised: sum of q at this depth")
right.plot(depth_L, kept_L, "s--", label="kept: share of accepted paths this deep")
right.set(xlabel="depth d (tokens after the root)", ylabel="mean over anchors", ylim=(0, 1.05))
right.legend(frameon=False, fontsize=9)
plt.show()

for name, chosen in (("all anchors", np.ones_like(start_X)), ("anchors where a round starts", start_X)):
    pair = f"expected {expected_X[chosen].mean():.2f}, achieved {achieved_X[chosen].mean():.2f}"
    print(f"{name:29}: {pair} tokens ({chosen.sum()} trees)")
assert 0 < expected_X.mean() - achieved_X.mean() < 0.3
assert all(p > k for p, k in zip(promised_L, kept_L, strict=True))
assert (np.diff([achieved for _, achieved in means]) > 0).all()
assert achieved_X.mean() > achieved_X[start_X].mean() + 0.5
most, least = max(means, key=lambda pair: pair[0] - pair[1])
assert 6.5 < most < 7.5
assert least < 6

# %% [markdown]
# On average the drafter promises a little too much: at every depth the accepted paths are somewhat fewer than the sum
# of $q$ says. The gap is largest where it promises about 7 tokens: fewer than 6 come. But the order is right: from
# tenth to tenth, trees that promise more yield more.
#
# The two lines of numbers differ for a reason. Rounds do not start at random anchors: a round starts where the last one
# ended, often just after a token that the drafter did not foresee. The mean over all anchors is more than half a token
# above $\tau$. A trace must be replayed round by round; averaging over positions gives another number.
#
# ## 8. Where rounds end
#
# A round ends when the target wants a token that the tree lacks below the accepted path, or when the path has reached
# depth $L$. For each round of $B = 64$ that ended early: at which depth was the missed token, and which rank did the
# drafter give it?

# %%
drafts_R = achieved_X[start_X] - 1
early_R = drafts_R < L
missed_R = rank_STL.reshape(-1, L)[start_X][early_R, drafts_R[early_R]]
EDGES = [0, 1, 2, 4, 8, 16, 32, 64, 10**6]
NAMES = ["0", "1", "2 to 3", "4 to 7", "8 to 15", "16 to 31", "32 to 63", "not recorded"]
table = np.histogram2d(missed_R, drafts_R[early_R] + 1, [EDGES, np.arange(1, L + 2)])[0].astype(int)
assert table.sum() == early_R.sum()

fig, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
ax.imshow(table, cmap="Blues", vmax=table.max() * 1.3, aspect="auto")
for (r, d), number in np.ndenumerate(table):
    ax.text(d, r, number, ha="center", va="center", fontsize=9)
ax.set_xticks(range(L), depth_L)
ax.set_yticks(range(len(NAMES)), NAMES)
ax.tick_params(length=0)
ax.spines[:].set_visible(False)
ax.set(xlabel="depth of the missed token", ylabel="its rank in the row")
ax.set_title(f"{early_R.sum()} of {len(early_R)} rounds end before depth {L}, B = {B}", fontsize=10)
plt.show()

share = {name: float(count / early_R.sum()) for name, count in zip(NAMES, table.sum(axis=1), strict=True)}
print("by rank:", ", ".join(f"{name}: {value:.0%}" for name, value in share.items()))
assert share["not recorded"] == 0
assert table[:, 0].sum() < 0.05 * early_R.sum()
assert table[:, 1:3].sum() > 0.6 * early_R.sum()
assert 0.45 < share["4 to 7"] + share["8 to 15"] < 0.55
assert 0.05 < share["0"] < 0.12

# %% [markdown]
# Most of these rounds end at depths 2 and 3, and about half miss a token of rank 4 to 15. Depth 1 is wide enough to be
# missed rarely. Some rounds end on a token of rank 0: the path had left the drafter's best tokens earlier, its weight
# was small, and the tree did not extend it, although the next first choice was right.
#
# ## 9. A fair comparison: the same number of verified tokens
#
# Comparing a tree of 64 nodes with a chain of 7 compares unequal work. At $B = L = 7$ both give the target exactly 7
# tokens to verify. The tree moves nodes from the deep end of the chain, which a walk seldom reaches, to second choices
# near the root. Both play the same sequences, so the differences can be taken sequence by sequence.

# %%
lens = {name: results[name].accept_lens[L] for name in ("chain", "ddtree")}
tokens_2S = np.array([[lengths.sum() for lengths in per_sequence] for per_sequence in lens.values()])
rounds_2S = np.array([[len(lengths) for lengths in per_sequence] for per_sequence in lens.values()])
chain_S, tree_S = tokens_2S / rounds_2S

pick_XS = np.random.default_rng(0).integers(0, S, (2000, S))
chain_X, tree_X = tokens_2S[:, pick_XS].sum(axis=2) / rounds_2S[:, pick_XS].sum(axis=2)
low, high = np.percentile(tree_X - chain_X, [2.5, 97.5])
gain = tau["ddtree"][L] - tau["chain"][L]

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.plot([1, L + 1], [1, L + 1], color=GREY, linewidth=1, label="equal")
left.plot(chain_S, tree_S, "o", color=BLUE, alpha=0.7, label="a sequence")
left.set(xlabel=f"chain, B = {L} (tokens per round)", ylabel=f"ddtree, B = {L}\n(tokens per round)", aspect="equal")
left.set(xticks=range(1, L + 2), yticks=range(1, L + 2))
left.legend(frameon=False)
right.hist(tree_X - chain_X, bins=40, color=BLUE, alpha=0.5)
right.axvline(gain, color="black")
right.axvspan(low, high, color=GREY, alpha=0.2, linewidth=0)
right.set(xlabel="gain of ddtree over chain (tokens per round)", ylabel="resamples of the sequences", xlim=(0, None))
right.set_title(f"gain {gain:.2f}, 95% interval {low:.2f} to {high:.2f}", fontsize=10)
plt.show()

worse = int((tree_S < chain_S).sum())
print(f"the tree is behind the chain on {worse} of {S} sequences")
assert worse == 1
assert round(gain, 2) == 0.41
assert low > 0.25
assert results["chain"].tau_interval[L][1] > results["ddtree"].tau_interval[L][0]

# %% [markdown]
# At equal work the tree commits 0.41 tokens more per round, and it is behind on 1 of the 24 sequences. The interval of
# the *difference* is far from 0, although the bands of the two curves in section 3 overlap.
#
# ## 10. Diminishing returns
#
# On a logarithmic axis the curve of section 3 bends only a little: what counts is the doubling. Per node the gain falls
# steeply, as $q$ of the nodes does.

# %%
DOUBLING = [1, 2, 4, 8, 16, 32, 64, 128, 256]
tau_tree = np.array([tau["ddtree"][b] for b in DOUBLING])
step = np.diff(tau_tree)
read = (np.array(DOUBLING) + 1) / tau_tree

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.bar(range(len(step)), step, color=BLUE)
left.set_xticks(range(len(step)), [f"{b}→{2 * b}" for b in DOUBLING[:-1]], rotation=45)
left.set(xlabel="doubling of the budget", ylabel="gain (tokens per round)")
right.loglog(DOUBLING, read, "o-", base=2, ms=4)
right.set_xticks(DOUBLING[::2], DOUBLING[::2])
right.set_yticks([1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8, 16, 32, 64])
right.set(xlabel="node budget B", ylabel="slots that the target reads\nper committed token")
plt.show()

for b, more in zip(DOUBLING[:-1], step, strict=True):
    print(f"{b:4} to {2 * b:4}: {more:.3f} tokens per round, {1000 * more / b:6.1f} per 1000 nodes added")
assert step[:3].min() > 0.4
assert ((step[3:] > 0.2) & (step[3:] < 0.31)).all()
assert (np.diff(step / DOUBLING[:-1]) < 0).all()

# %% [markdown]
# From 8 nodes on, each doubling adds between 0.2 and 0.31 tokens per round, for twice the nodes of the doubling before.
# The slots that the target reads for each committed token grow almost as fast as the budget.
#
# ## 11. The published numbers
#
# The DDTree paper (Ringel and Romano, arXiv 2604.12989) reports, for Qwen3-8B on MATH-500 at temperature 0 with a block
# of 16, so $L = 15$, the accept length and the speed-up over autoregressive decoding. Its chain is DFlash, the same
# drafter without a tree. Model, drafter, text and $L$ all differ from the shipped trace, so only shapes can be
# compared. On the left, each macro $\tau$ is divided by that of its own chain.

# %%
PAPER = {  # budget: speed-up, accept length
    16: (6.09, 8.61),
    32: (6.60, 9.27),
    64: (6.97, 9.75),
    128: (7.33, 10.20),
    256: (7.43, 10.43),
    512: (7.52, 10.73),
    1024: (6.82, 10.98),
}
CHAIN_SPEEDUP, CHAIN_TAU = 5.56, 7.79
paper_budgets = list(PAPER)
paper_speedup, paper_tau = np.transpose(list(PAPER.values()))
LONG = BUDGETS[BUDGETS.index(L) :]  # budgets at which the chain is complete
ours = np.array([results["ddtree"].macro_tau[b] for b in LONG]) / results["chain"].macro_tau[L]

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
left.plot(LONG, ours, "o-", ms=4, label="shipped trace, L = 7: accept length")
left.plot(paper_budgets, paper_tau / CHAIN_TAU, "s--", color=ORANGE, ms=4, label="paper, L = 15: accept length")
right.plot(paper_budgets, paper_tau / CHAIN_TAU, "s--", color=ORANGE, ms=4, label="paper: accept length")
right.plot(paper_budgets, paper_speedup / CHAIN_SPEEDUP, "D-", color=GREEN, ms=4, label="paper: speed-up")
left.set_ylabel("relative to the chain")
for ax, ticks in ((left, [8, 32, 128, 512]), (right, [16, 64, 256, 1024])):
    ax.axhline(1, color=GREY, linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, ticks)
    ax.set_xlabel("node budget")
    ax.legend(frameon=False, loc="upper left", fontsize=9)
left.set_ylim(0.97, 1.65)
plt.show()

assert (ours > 1).all()
assert (np.diff(ours) > 0).all()
assert (paper_tau > CHAIN_TAU).all()
assert (np.diff(paper_tau) > 0).all()
assert paper_budgets[paper_speedup.argmax()] == 512

# %% [markdown]
# The shapes agree: the tree is ahead of the chain at every budget, accept length keeps growing with the budget, and a
# doubling is worth a fraction of a token.
#
# The paper also prints the histogram of accept lengths, for its chain and for $B = 512$. It changes in the way that
# section 5 shows: rounds that accept no draft almost vanish, and more rounds take the whole block.

# %%
# fmt: off
PAPER_CHAIN = [10.25, 11.89, 9.97, 8.21, 6.97, 5.53, 4.52, 4.07, 3.63, 3.30, 2.97, 2.78, 2.61, 2.35, 2.34, 18.62]
PAPER_TREE = [0.07, 0.73, 3.50, 6.40, 7.88, 7.21, 7.24, 6.19, 5.57, 4.48, 4.76, 3.94, 3.97, 3.29, 2.73, 32.05]
# fmt: on

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
draw_histogram(left, 256)
left.set_title("shipped trace", fontsize=10)
for percent, name, side, colour in ((PAPER_CHAIN, "chain", -0.2, ORANGE), (PAPER_TREE, "ddtree, B = 512", 0.2, BLUE)):
    right.bar(np.arange(1, 17) + side, percent, 0.4, color=colour, label=name)
right.set(xlabel="accept length of a round (tokens)", ylabel="rounds (%)", xticks=range(1, 17), ylim=(0, 50))
right.set_title("paper", fontsize=10)
right.legend(frameon=False)
plt.show()

assert PAPER_TREE[0] < 1
assert PAPER_TREE[-1] > 1.5 * PAPER_CHAIN[-1]
assert max(abs(sum(PAPER_CHAIN) - 100), abs(sum(PAPER_TREE) - 100)) < 0.1

# %% [markdown]
# ## 12. What a trace cannot tell
#
# A trace has no clock. In the paper, accept length still rises from $B = 512$ to 1024, but the speed-up is best at 512
# and falls after it. A round takes the time of drafting, of building the tree and of verifying $B + 1$ slots, and the
# last grows with $B$, with the context and with the batch. With $c$ for the time of a round,
#
# $$\frac{\text{speed of the tree}}{\text{speed of the chain}} = \frac{\tau_B}{\tau_{\text{chain}}} \cdot
#   \frac{c_{\text{chain}}}{c_B} .$$
#
# So a trace does tell the break-even: a tree pays only while its round costs less than $\tau_B / \tau_{\text{chain}}$
# rounds of the chain. And from the paper's pairs one can read what a round cost there, in autoregressive steps: $\tau$
# divided by the speed-up.

# %%
even = np.array([tau["ddtree"][b] for b in LONG]) / tau["chain"][L]
cost = paper_tau / paper_speedup
cost_chain = CHAIN_TAU / CHAIN_SPEEDUP

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.fill_between(LONG, 1, even, color=BLUE, alpha=0.15, linewidth=0)
left.plot(LONG, even, "o-", ms=4)
left.text(64, 1.15, "the tree pays", ha="center")
left.text(20, 1.5, "the chain is faster", ha="center")
left.set(ylabel="cost of a round\n(rounds of the chain)", ylim=(1, None))
left.set_title("break-even on the shipped trace", fontsize=10)
right.axhline(cost_chain, color=GREY, linewidth=1, label="DFlash chain")
right.plot(paper_budgets, cost, "s--", color=ORANGE, ms=4, label="DDTree")
right.set(ylabel="cost of a round\n(autoregressive steps)", ylim=(1.2, 1.7))
right.set_title("implied by the paper's figures", fontsize=10)
right.legend(frameon=False, loc="upper left")
for ax, ticks in ((left, [8, 32, 128]), (right, [16, 64, 256, 1024])):
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, ticks)
    ax.set_xlabel("node budget")
plt.show()

print("paper, cost of a round:", {b: round(float(c), 2) for b, c in zip(paper_budgets, cost, strict=True)})
assert abs(cost[:5] - cost_chain).max() < 0.02
assert round(cost[-1], 1) == 1.6
assert round(even[LONG.index(64)], 2) == 1.48

# %% [markdown]
# On the shipped trace, a round with 64 nodes may cost up to 1.48 rounds of the chain. In the paper's setting a round of
# up to 256 nodes cost what a round of the chain did, within 0.02 steps, and one of 1024 nodes 1.6 steps. Where that
# bend lies depends on the device, the model, the context and the batch, and has to be measured there.
#
# A trace is silent about more. This one holds a single kind of text, source code by a very small model, and a single
# temperature. And 24 sequences of 96 anchors leave the intervals that section 3 shows.
#
# ## Things to try
#
# 1. Replay with `"accum_logp:width=2"` and `"accum_logp:width=4"`. Which width is best at which budget, and does any of
#    them ever beat `ddtree`?
# 2. A drafter can be too sure or too modest. Divide `topk_log_probs` by a temperature between 0.5 and 2, subtract the
#    logarithm of each row's sum of probabilities, and replay. Which temperature gives the longest accept length at
#    $B = 64$? Does the picture of section 7 say why?
# 3. Write a builder of your own: a function of (root_token_B, top_logprob_BLK, top_token_BLK, budget) that returns a
#    `TreeBatch`, for example the chain first and best-first search for the rest of the budget. `kdtree.replay` takes it
#    as it is.
