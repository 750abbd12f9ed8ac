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
# # A real drafter
#
# How good are the guesses that a tree is made of? This notebook looks at a trained block-diffusion drafter through a
# recorded trace: what its marginals look like, whether they mean what they say, what they miss after a wrong turn, and
# where rounds end because of that.
#
# The notebook `02_accept_length_vs_budget` explains traces and replay. The figures are printed, not written in the
# text, so that the next cell may name another shipped trace, or load one of your own.

# %%
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from ipywidgets import IntSlider, interact

import kdtree
from kdtree import diagnostics, ops, plot, plot_diagnostics

TRACE = "tiny_t05"
trace = kdtree.Trace.shipped(TRACE)

BLUE, ORANGE, *_ = plot.COLOURS
plt.rcParams |= {"figure.dpi": 100, "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
plt.rcParams["axes.prop_cycle"] = plt.cycler(color=plot.COLOURS)

S, T, L, K = trace.topk_ids.shape
depth_L = np.arange(1, L + 1)
print(f"{TRACE}: {S} sequences, up to {T} anchors each, drafts of L = {L} tokens, K = {K} recorded tokens per row")
for key in ("target", "drafter", "decoding", "prompts"):
    if key in trace.metadata:
        print(f"{key:9}: {trace.metadata[key]}")

# %% [markdown]
# ## 1. The marginals at one anchor
#
# At an anchor the drafter knows the text up to the root, the last committed token. In one pass it gives a distribution
# for each of the next $L$ tokens, *without* knowing the tokens between. Row $d$ is about the token at depth $d$,
# whatever stands at the depths before it.
#
# The cell picks an anchor where the target agreed with the drafter's first choice at depth 1, and took another token at
# depth 2: of all such anchors, the one where the drafter held that other token most probable.

# %%
ranks = diagnostics.target_ranks(trace)
turned_T = (ranks.rank_TL[:, 0] == 0) & (ranks.rank_TL[:, 1] > 0) & (ranks.rank_TL[:, 1] < K)
place_T = ranks.sequence_T[turned_T], ranks.anchor_T[turned_T], 1, ranks.rank_TL[turned_T, 1]
best = trace.topk_log_probs[place_T].argmax()
SEQUENCE, ANCHOR = int(place_T[0][best]), int(place_T[1][best])


def text(tokens):
    """Return tokens as they are written."""
    return "".join(trace.label(int(token)) for token in tokens if token < 256)  # BOS is no character


prompt = trace.prompt[SEQUENCE, : trace.prompt_len[SEQUENCE]]
continuation = trace.continuation[SEQUENCE]
print(f"sequence {SEQUENCE}, anchor {ANCHOR}; the text up to the root:")
print("-" * 60)
print(text([*prompt, *continuation[: ANCHOR + 1]])[-240:])
print("-" * 60)
print("the target goes on with", repr(text(continuation[ANCHOR + 1 : ANCHOR + 1 + L])))

plot_diagnostics.marginals(trace, SEQUENCE, ANCHOR)
plt.show()

# %% [markdown]
# A column is a depth, rank 0 on top is the first choice, and the frame marks what the target wrote. The tokens of rank
# 0 read from left to right are the *spine*, which is also the chain. A tree holds other paths: it may take any cell of
# each column, and it takes those with the largest product of probabilities.
#
# With a running kernel, the sliders show any anchor.

# %%
LAST = int(trace.anchor_count.min()) - L - 1


def show(sequence, anchor):
    """Draw the marginals of one anchor, below the text before it."""
    print(repr(text(trace.continuation[sequence, max(0, anchor - 60) : anchor + 1])))
    plot_diagnostics.marginals(trace, sequence, anchor)
    plt.show()


_ = interact(show, sequence=IntSlider(SEQUENCE, 0, S - 1), anchor=IntSlider(min(ANCHOR, LAST), 0, LAST))

# %% [markdown]
# ## 2. Hits by depth
#
# At how many anchors is the target's token the drafter's first choice, or among its best 2, 4, 8, ...? This counts all
# anchors, and it asks for each depth alone: the depths before may have been wrong.

# %%
within_LK = diagnostics.hit_rates(trace)
fig, ax = plt.subplots(figsize=(9, 3.4), layout="constrained")
plot_diagnostics.hit_rates(within_LK, ax)
plt.show()

for k in (1, 4, K):
    print(f"among the best {k:2}:", *(f"{100 * rate:5.1f}" for rate in within_LK[:, k - 1]), "  % at depth 1, 2, ...")
assert (np.diff(within_LK, axis=1) >= 0).all()

# %% [markdown]
# The lowest line is what a chain lives on. The distance to the lines above it is what a tree can win: tokens that the
# drafter did list, only not first. What the top line lacks to 1 is out of reach for a tree of this trace.
#
# ## 3. Calibration
#
# A tree is built from *stated* probabilities: DDTree keeps the $B$ prefixes with the largest product. So the statements
# have to be true: of all candidates that are given 30%, about 30% should come. Here they are counted by place. Each
# cell has the stated probability above and the measured one below, in percent; red cells come less often than stated.

# %%
fig, ax = plt.subplots(figsize=(9, 3.9), layout="constrained")
plot_diagnostics.calibration(diagnostics.calibration(trace), ax)
plt.show()

# %% [markdown]
# The *reliability diagram* sorts the candidates of all ranks by what is stated about them. A calibrated drafter is on
# the diagonal; one that is too sure is below it.
#
# The expected calibration error is the sum over the bins of $|\text{stated} - \text{measured}|$, weighted by how many
# candidates a bin has per anchor. For the first choices alone it is the usual error of a classifier. For all ranks it
# says how much of a row's probability stands on candidates that deserve more or less.

# %%
every = diagnostics.reliability(trace)
first = diagnostics.reliability(
    replace(trace, topk_ids=trace.topk_ids[..., :1], topk_log_probs=trace.topk_log_probs[..., :1])
)
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
plot_diagnostics.reliability(every, left)
right.plot(depth_L, every.error_L, "o-", label="all ranks")
right.plot(depth_L, first.error_L, "s--", label="first choices")
right.set(xlabel="depth (tokens after the root)", ylabel="expected calibration error per anchor", ylim=(0, None))
right.legend(frameon=False)
plt.show()

stated_L, measured_L = first.stated_LG * first.count_LG, first.measured_LG * first.count_LG
gap_L = np.nansum(stated_L - measured_L, axis=1) / first.count_LG.sum(axis=1)
print("first choice, stated - measured:", *(f"{100 * gap:+.1f}" for gap in gap_L), "points at depth 1, 2, ...")

# %% [markdown]
# ## 4. After a sibling
#
# The marginal of depth $d + 1$ does not know what stands at depth $d$. DDTree uses it below *every* node of depth $d$:
#
# $$q(\text{child}) = q(\text{node}) \cdot q_{d+1}(\text{token}) .$$
#
# A marginal is an average over what may stand before: $q_{d+1}(x) = \sum_y P(y)\, P(x \mid y)$ if it is exact. The
# likely $y$, those of the spine, weigh most in it. So, where neighbours depend on each other, even an exact marginal
# tends to be too low for the first choice on the spine, and too high after a *sibling*, a token of rank 1 or more: if
# the word turns out to be another one, its next letter is another one too.
#
# The trace can tell by how much. Take the anchors where the target wrote first choices at all depths before $d$, and
# those where it wrote first choices up to $d - 2$ and then a listed sibling at $d - 1$. How often is the first choice
# of depth $d$ right, and what was stated?

# %%
found = diagnostics.after_sibling(trace)
fig, ax = plt.subplots(figsize=(9, 3.4), layout="constrained")
plot_diagnostics.after_sibling(found, ax)
plt.show()

print("depth    on the spine: stated, right (anchors)    after a sibling: stated, right (anchors)")
for d in range(L):
    cells = [f"{part.stated_L[d]:.2f}, {part.right_L[d]:.2f} ({part.count_L[d]:5})" for part in found]
    print(f"{d + 1:5}    {cells[0]:>37}    {cells[1]:>40}")
assert found.sibling.right_L[1] < found.spine.right_L[1]
assert found.sibling.stated_L[1] < found.spine.stated_L[1]

# %% [markdown]
# Two things are in this picture. Anchors where the target takes a sibling are the hard ones, and the drafter knows some
# of that: it states less after a sibling than on the spine. What matters for a tree is the gap between dashed and solid
# of *one* colour, since the dashed value is what the tree multiplies by.
#
# Does this reach the trees? Sort the nodes of all trees of one budget into three groups: nodes of the spine, siblings
# that hang on it, and nodes anywhere below such a sibling. The sum of $q$ over a group is the number of its nodes that
# a tree promises to have accepted, and the walk along the target's text says how many were.

# %%
BUDGET = 64
GROUPS = "spine", "siblings on the spine", "below a sibling"
promised, kept = np.zeros(3), np.zeros(3)
for s in range(S):
    anchor_B = ranks.anchor_T[ranks.sequence_T == s]
    trees = ops.tree_build.on("numba")(
        trace.continuation[s, anchor_B], trace.topk_log_probs[s, anchor_B], trace.topk_ids[s, anchor_B], BUDGET
    )
    links = ops.retrieve.on("numba")(trees.parent_BN, trees.node_count_B)
    after_T = np.append(trace.continuation[s], -1)  # no tree reaches beyond it
    target_BN = after_T[np.minimum(anchor_B[:, None] + 1 + trees.depth_BN, len(after_T) - 1)]
    path_BN = ops.accept_greedy.on("numba")(trees.token_BN, *links, trees.node_count_B, target_BN).path_BN
    accepted_BN = np.zeros(trees.token_BN.shape, bool)
    row_X, place_X = np.nonzero(path_BN > 0)
    accepted_BN[row_X, path_BN[row_X, place_X]] = True
    row_B, group_BN = np.arange(len(anchor_B)), np.zeros(trees.token_BN.shape, int)
    for slot in range(1, BUDGET + 1):  # parents come before children
        parent_B = group_BN[row_B, trees.parent_BN[:, slot]]
        group_BN[:, slot] = np.where(parent_B > 0, 2, trees.rank_BN[:, slot] > 0)
    for group in range(3):
        mine_BN = (group_BN == group) & (trees.depth_BN > 0)
        promised[group] += np.exp(trees.logw_BN[mine_BN]).sum()
        kept[group] += (accepted_BN & mine_BN).sum()
promised, kept = promised / len(ranks.anchor_T), kept / len(ranks.anchor_T)

fig, ax = plt.subplots(figsize=(9, 2.6), layout="constrained")
for values, side, colour, label in ((promised, -0.2, BLUE, "promised: sum of q"), (kept, 0.2, ORANGE, "accepted")):
    bars = ax.barh(np.arange(3) + side, values, 0.38, color=colour, label=label)
    ax.bar_label(bars, fmt="%.2f", padding=3)
ax.set_yticks(range(3), GROUPS)
ax.invert_yaxis()
ax.set_xlabel(f"nodes per tree (all anchors, B = {BUDGET})")
ax.legend(frameon=False, loc="lower right")
ax.margins(x=0.12)
plt.show()

for name, stated, came in zip(GROUPS, promised, kept, strict=True):
    print(f"{name:22}: promised {stated:.3f}, accepted {came:.3f}, ratio {came / stated:.2f}")

# %% [markdown]
# A ratio below 1 means that the group holds more of the budget than it earns. If it is lowest below siblings, the
# factorised score overrates siblings' children: a score that knew the sibling would have put some of these nodes
# elsewhere. Recalibrating each depth does not repair that: it moves the two dashed lines of the picture above together,
# while what is missing is the dependence of a token on the one before, which no product of marginals has.
#
# ## 5. Where rounds end
#
# From here on the anchors are those where rounds start. A round ends at the first token that its tree lacks. At which
# depth was that, and which rank did the drafter give the token?

# %%
budgets = 16, 256
ends = {budget: diagnostics.round_ends(trace, "ddtree", budget) for budget in budgets}
fig, axes = plt.subplots(1, 2, figsize=(9 if L < 10 else 13, 3.4), layout="constrained", sharey=True)
for ax, (budget, rounds) in zip(axes, ends.items(), strict=True):
    plot_diagnostics.round_ends(rounds, ax)
    ax.set_title(f"B = {budget}: {ax.get_title()}", fontsize=10)
axes[1].set_ylabel("")
plt.show()

for budget, rounds in ends.items():
    missed = rounds.missed_rank_R[rounds.missed_rank_R >= 0]
    shares = {"rank 0": missed == 0, "ranks 1 to 3": (missed > 0) & (missed < 4), "not listed": missed == K}
    print(f"B = {budget:3}:", ", ".join(f"{name} {share.mean():.1%}" for name, share in shares.items()))
    assert np.isclose(rounds.accept_len_R.mean(), kdtree.replay(trace, "ddtree", [budget]).tau[budget])

# %% [markdown]
# Rank 0 in this table is a token that the drafter did place first. The tree lacks it where the weight of the path above
# was small already, most often because it had left the spine. With the larger budget fewer rounds end at small depths.
#
# ## 6. Rounds and promises
#
# The share of rounds of each length, for the chain and for two trees, and the mean against the budget. The surrogate
# that DDTree maximises, the sum of $q$ over a tree with 1 for the bonus token, is the dashed line. It is taken at the
# same anchors as the solid line: those where the rounds of that budget start.

# %%
rounds = {"chain": diagnostics.round_ends(trace, "chain", L)}
rounds |= {f"ddtree, B = {budget}": ends[budget] for budget in budgets}
BUDGETS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", width_ratios=[3, 2])
plot_diagnostics.accept_lens(rounds, left)
left.tick_params(axis="x", labelsize=8)
promises = {name: diagnostics.surrogate(trace, name, BUDGETS) for name in ("chain", "ddtree")}
plot_diagnostics.surrogate(promises, right)
right.set_xlabel("node budget")
right.legend(frameon=False, fontsize=8)
plt.show()

print(f"{'budget':>9}", *(f"{budget:6}" for budget in BUDGETS))
for name, result in promises.items():
    print(f"{name:>9}", *(f"{tau:6.3f}" for tau in result.achieved_G), "  achieved")
    print(f"{'':>9}", *(f"{tau:6.3f}" for tau in result.expected_G), "  promised")
flagged = kdtree.replay(trace, "ddtree", BUDGETS).flagged
print("rounds that more recorded ranks might change:", {budget: n for budget, n in flagged.items() if n} or "none")

# %% [markdown]
# The mean promise can be close to the mean result although parts of it are wrong, since errors of both signs cancel.
# Promise and result of single rounds say more: the rounds are sorted by promise and averaged by tenths.

# %%
fig, ax = plt.subplots(figsize=(5.5, 3.8), layout="constrained")
ax.plot([1, L + 1], [1, L + 1], color="#8c959f", linewidth=1)
for (name, result), style in zip(rounds.items(), ("o-", "s--", "D-."), strict=True):
    tenths = np.array_split(np.argsort(result.expected_len_R, kind="stable"), 10)
    means = [(result.expected_len_R[tenth].mean(), result.accept_len_R[tenth].mean()) for tenth in tenths]
    ax.plot(*np.transpose(means), style, ms=4, label=name)
ax.set(xlabel="promised accept length (tokens)", ylabel="achieved accept length (tokens)")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# ## 7. Temperatures
#
# As a rule, a target that samples at a higher temperature is harder to foresee. Every shipped trace of the same pair is
# drawn, one line a temperature; where one temperature is shipped, there is one line.

# %%
FAMILY = TRACE.rsplit("_", 1)[0]
names = [name for name in kdtree.Trace.shipped_names() if name.startswith(f"{FAMILY}_t")]
results = {}
fig, (left, middle, right) = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
for name, colour in zip(names, plot.COLOURS, strict=False):
    other = kdtree.Trace.shipped(name)
    depths = np.arange(1, other.draft_len + 1)
    results[name] = kdtree.replay(other, "ddtree", BUDGETS)
    sibling = diagnostics.after_sibling(other).sibling
    left.plot(depths, diagnostics.hit_rates(other)[:, 0], "o-", ms=3, color=colour)
    many = sibling.count_L >= plot_diagnostics.FEW
    middle.plot(depths[many], sibling.right_L[many], "s-", ms=3, color=colour)
    middle.plot(depths[many], sibling.stated_L[many], "s:", ms=3, color=colour)
plot.accept_curve(results, right)
left.set(xlabel="depth", ylabel="first choice right (share of anchors)", ylim=(0, 1))
middle.set(xlabel="depth", ylabel="after a sibling: right, stated (dotted)", ylim=(0, 1))
for ax in (left, middle):
    ax.xaxis.set_major_locator(plt.MaxNLocator(integer=True))
right.set(xlabel="node budget", ylabel="tokens per round")
right.tick_params(axis="x", labelsize=8)
plt.show()

for name, result in results.items():
    decoding = kdtree.Trace.shipped(name).metadata.get("decoding", "")
    print(f"{name:10} ({decoding}):", ", ".join(f"B = {budget}: {result.tau[budget]:.3f}" for budget in (16, 64, 256)))

# %% [markdown]
# ## Things to try
#
# 1. Divide `topk_log_probs` by a temperature, subtract the logarithm of each row's sum, and look at sections 3 and 4
#    again. Which of the two gaps closes?
# 2. Write a builder that multiplies the weight of every node below a sibling by a factor, and replay it. Which factor
#    is best at $B = 64$, and what does it gain?
# 3. The hits of section 2 count all anchors. Count them where rounds start, with `sequence_R` and `anchor_R` of
#    `round_ends`. How do they differ, and why?
