"""What five public documents print, against our functions, to 4 decimals.

Learners come from these lecture notes, notebooks and an article on attention: Raschka (2024), "Understanding
and Coding Self-Attention, Multi-Head Attention, Cross-Attention, and Causal-Attention in LLMs". The printed
numbers depend on PyTorch's random numbers, as those of the notebooks do.
"""

import pytest
import torch
import torch.nn.functional as F

from attention_course.attention import attention, attention_weights, causal_mask
from attention_course.averaging import causal_mean_loop, causal_mean_matmul, causal_mean_softmax

MEANS = [causal_mean_loop, causal_mean_matmul, causal_mean_softmax]


def assert_prints_as(actual, printed):
    """Compare with numbers that were printed to 4 decimals."""
    torch.testing.assert_close(actual, torch.tensor(printed), atol=6e-5, rtol=0)


@pytest.fixture
def article():
    """Return the article's six tokens, "Life is short, eat dessert first", and its three matrices."""
    torch.manual_seed(123)
    embedding = torch.nn.Embedding(50_000, 3)
    x = embedding(torch.tensor([0, 4, 5, 2, 1, 3])).detach()
    assert_prints_as(x[:2], [[0.3374, -0.1778, -0.3035], [0.1794, 1.8951, 0.4954]])
    torch.manual_seed(123)
    return x, torch.rand(3, 2), torch.rand(3, 2), torch.rand(3, 4)


@pytest.mark.parametrize("mean", MEANS)
def test_running_means_of_notes_and_of_a_notebook(mean):
    torch.manual_seed(1)
    printed = [[-1.5256, -0.7502], [-1.0898, -1.1799], [-0.7599, -0.9896], [-0.8149, -1.1445]]
    assert_prints_as(mean(torch.randn(8, 2))[:4], printed)
    torch.manual_seed(1337)
    printed = [[0.1808, -0.0700], [-0.0894, -0.4926], [0.1490, -0.3199], [0.3504, -0.2238]]
    assert_prints_as(mean(torch.randn(4, 8, 2))[0, :4], printed)


def test_notebook_on_russian_literature_variances():
    torch.manual_seed(3)
    torch.randn(4, 8, 32)
    for _ in range(3):
        torch.nn.Linear(32, 16, bias=False)
    k, q = torch.randn(4, 8, 16), torch.randn(4, 8, 16)
    scores = q @ k.transpose(-2, -1)
    variances = torch.stack([k.var(), q.var(), scores.var(), (scores * 16**-0.5).var()])
    assert_prints_as(variances, [0.9535, 1.0524, 15.1501, 0.9469])


def test_article_self_attention(article):
    x, W_query, W_key, W_value = article
    q, k = x @ W_query, x @ W_key
    assert_prints_as(attention_weights(q, k)[2], [0.1965, 0.0618, 0.2506, 0.1452, 0.1146, 0.2312])
    output, _ = attention(q, k, x @ W_value)
    assert_prints_as(
        output[[0, 5]], [[-0.1564, 0.1028, -0.0763, -0.0764], [-0.5296, -0.2799, -0.4107, -0.6006]]
    )


def test_article_causal_weights(article):
    x, W_query, W_key, _ = article
    weights = attention_weights(x @ W_query, x @ W_key, causal_mask(6))
    assert_prints_as(weights[3], [0.2232, 0.3242, 0.2078, 0.2449, 0, 0])
    assert_prints_as(weights[4], [0.1536, 0.3145, 0.1325, 0.1849, 0.2145, 0])


def test_article_cross_attention(article):
    x, W_query, W_key, W_value = article
    context = torch.rand(8, 3)
    output, weights = attention(x @ W_query, context @ W_key, context @ W_value)
    assert weights.shape == (6, 8)
    printed = [[0.4231, 0.8665, 0.6503, 1.0042], [0.4874, 0.9718, 0.7359, 1.1353]]
    assert_prints_as(output[:2], printed)


def test_notebook_on_saturation():
    """Its unscaled scores give the printed weights, nearly one-hot rows. Scaled, they are softer."""
    scores = torch.tensor([[13.8004, 7.0465, -7.8591], [1.6687, 0.9556, 0.5353], [13.7186, 6.7265, -12.4250]])
    weights = F.softmax(scores, dim=-1)
    assert_prints_as(weights, [[0.9988, 0.0012, 0.0], [0.5519, 0.2705, 0.1777], [0.9991, 0.0009, 0.0]])
    scaled = F.softmax(scores / 4**0.5, dim=-1)
    assert scaled[0, 0] < 0.97
