"""Tiny targets to decode with, drafters for them, and what tests compare."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
from model_fixtures import random_weights, tiny_config

from kdtree.decode import autoregressive
from kdtree.drafters.oracle import Oracle
from kdtree.sampling import Seeded
from kdtree.target import Target

V = 23
CONFIG = tiny_config(
    vocab_size=V, hidden_size=16, num_hidden_layers=2, q_lora_rank=6, kv_lora_rank=6, intermediate_size=12,
    moe_intermediate_size=8,
)  # fmt: skip
SEEDED = Seeded(1.0, seed=7)  # does not loop, as greedy text of so small a model does


@lru_cache
def target(dtype=np.float32, exact=True, context=512, seed=0, backend="numpy"):
    config = replace(CONFIG, max_position_embeddings=context)
    return Target(random_weights(config, seed, dtype), backend, exact)


def streams(decoding):
    return [(sequence.tokens, sequence.reason) for sequence in decoding.sequences]


def accept_lens(decoding):
    return [sequence.accept_lens for sequence in decoding.sequences]


def oracle(prompts, plain, draft_len, error_rate=0.0):
    continuations = [sequence.tokens for sequence in plain.sequences]
    return Oracle(prompts, continuations, draft_len=draft_len, vocab_size=V, error_rate=error_rate, seed=1)


TEXT = [4, 17, 9]  # a prompt, what the examples continue


@lru_cache
def plain_text(n=24):
    return autoregressive(target(), [TEXT], max_new_tokens=n, sampler=SEEDED)
