"""What five public documents print, against our functions, to 4 decimals.

The documents are lecture notes, notebooks and an article on attention from which learners come. Their
printed numbers depend on PyTorch's random numbers, as those of the notebooks do. The article is Raschka's
(2024), "Understanding and Coding Self-Attention, Multi-Head Attention, Cross-Attention, and Causal-Attention
in LLMs".
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


def test_this_pytorch_draws_the_random_numbers_of_the_documents():
    assert_prints_as(torch.randn(2, generator=torch.Generator().manual_seed(1)), [0.6614, 0.2669])


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
def test_notes_running_mean(mean):
    torch.manual_seed(1)
    printed = [[-1.5256, -0.7502], [-1.0898, -1.1799], [-0.7599, -0.9896], [-0.8149, -1.1445]]
    assert_prints_as(mean(torch.randn(8, 2))[:4], printed)


@pytest.mark.parametrize("mean", MEANS)
def test_notebook_of_one_head_running_mean(mean):
    torch.manual_seed(1337)
    x = torch.randn(4, 8, 2)
    printed = [[0.1808, -0.0700], [-0.0894, -0.4926], [0.1490, -0.3199], [0.3504, -0.2238]]
    assert_prints_as(mean(x)[0, :4], printed)


def test_notebook_on_russian_literature_variances():
    torch.manual_seed(3)
    torch.randn(4, 8, 32)
    for _ in range(3):
        torch.nn.Linear(32, 16, bias=False)
    k, q = torch.randn(4, 8, 16), torch.randn(4, 8, 16)
    scores = q @ k.transpose(-2, -1)
    variances = torch.stack([k.var(), q.var(), scores.var(), (scores * 16**-0.5).var()])
    assert_prints_as(variances, [0.9535, 1.0524, 15.1501, 0.9469])


def test_article_scores_and_weights(article):
    x, W_query, W_key, _ = article
    q, k = x @ W_query, x @ W_key
    assert_prints_as(q[2] @ k.T, [0.2432, -1.3934, 0.5869, -0.1851, -0.5191, 0.4730])
    assert_prints_as(attention_weights(q, k)[2], [0.1965, 0.0618, 0.2506, 0.1452, 0.1146, 0.2312])


def test_article_self_attention(article):
    x, W_query, W_key, W_value = article
    output, _ = attention(x @ W_query, x @ W_key, x @ W_value)
    assert_prints_as(output[0], [-0.1564, 0.1028, -0.0763, -0.0764])
    # The article prints -0.2627 in the third column; it is -0.26265.
    torch.testing.assert_close(
        output[2], torch.tensor([-0.3542, -0.1234, -0.2626, -0.3706]), atol=1e-4, rtol=0
    )
    assert_prints_as(output[5], [-0.5296, -0.2799, -0.4107, -0.6006])


def test_article_causal_weights(article):
    x, W_query, W_key, _ = article
    weights = attention_weights(x @ W_query, x @ W_key, causal_mask(6))
    assert_prints_as(weights[3], [0.2232, 0.3242, 0.2078, 0.2449, 0, 0])
    assert_prints_as(weights[4], [0.1536, 0.3145, 0.1325, 0.1849, 0.2145, 0])
    multiplied = attention_weights(x @ W_query, x @ W_key) * causal_mask(6)
    assert_prints_as(multiplied[3, :4], [0.1505, 0.2187, 0.1401, 0.1651])
    assert_prints_as(multiplied[4, :5], [0.1347, 0.2758, 0.1162, 0.1621, 0.1881])


def test_article_four_heads(article):
    x, *_ = article
    torch.manual_seed(123)
    outputs = []
    for _ in range(4):
        W_query, W_key, W_value = torch.rand(3, 2), torch.rand(3, 2), torch.rand(3, 1)
        outputs.append(attention(x @ W_query, x @ W_key, x @ W_value)[0])
    output = torch.cat(outputs, dim=-1)
    assert output.shape == (6, 4)
    assert_prints_as(output[0], [-0.0185, 0.0170, 0.1999, -0.0860])


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
