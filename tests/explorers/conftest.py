"""Shared by the tests of explorers that look at a model."""

import pytest
import torch
from tokenizers import pre_tokenizers

from attention_course.gpt import GPT, GPTConfig
from attention_course.llama import Llama, LlamaConfig
from attention_course.smollm import CONTROL, BytePairTokenizer, tokenizer_of
from attention_course.text import CharTokenizer


@pytest.fixture
def text():
    return "the cat sat on the mat.\n"


@pytest.fixture
def tokenizer(text):
    return CharTokenizer(text)


@pytest.fixture
def model(tokenizer):
    torch.manual_seed(1)
    return GPT(GPTConfig(tokenizer.vocab_size, block_size=16, n_layer=3, n_head=2, n_embd=8)).train()


@pytest.fixture
def pair_tokenizer():
    """All bytes, three merges, and a control token."""
    merges = ["t h", "th e", "Ġ c"]
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(m.replace(" ", "") for m in merges), "<|end|>"]
    return BytePairTokenizer(tokenizer_of(tokens, [1] * (len(tokens) - 1) + [CONTROL], merges))


@pytest.fixture
def llama(pair_tokenizer):
    torch.manual_seed(1)
    sizes = {"block_size": 96, "n_layer": 3, "n_head": 4, "n_embd": 16, "n_kv_head": 2}
    return Llama(LlamaConfig(pair_tokenizer.vocab_size, **sizes)).train()
