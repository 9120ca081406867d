"""Shared by the tests of explorers that look at a model."""

import pytest
import torch

from attention_course.gpt import GPT, GPTConfig
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
