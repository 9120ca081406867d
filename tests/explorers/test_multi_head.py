"""The explorer of sixteen jobs, shared by few heads or many."""

import math

import pytest
import torch

from attention_course.attention import causal_mask
from attention_course.rungs.multi_head import explorer as multi_head

T = len(multi_head.TEXT)


def says(out, n_head, query, masked):
    """The scores of a head are those of the channels that it holds, added up."""
    channels = multi_head.QUERIES.T[:, :, None] * multi_head.KEYS.T[:, None]  # (64, T, T)
    mask = causal_mask(T) if masked else torch.ones(T, T, dtype=torch.bool)
    scores = channels.view(n_head, -1, T, T).sum(dim=1) * (64 / n_head) ** -0.5
    weights = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
    torch.testing.assert_close(out["weights"], weights)
    row = out["weights"][0, query]
    yield f"n_head = {n_head}, head_size = 64 / {n_head} = {64 // n_head}."
    yield "Parameters: 4 · 64² = 16,384, for any n_head"
    yield f"gives {100 * row.max():.0f} % of its weight to key {row.argmax()} “"


def weights_of(n_head):
    return multi_head.compute(n_head, T - 1, masked=True)["weights"]


def test_with_sixteen_heads_each_job_has_a_map():
    """The jobs that the notebook names are done, and no two maps are alike."""
    weights, text = weights_of(16), multi_head.TEXT
    for head, back in ((0, 1), (4, 0), (7, 3), (11, 2), (15, 4)):
        assert (weights[head].diagonal(-back) > 0.9).all()
    assert (weights[2, :, 0] > 0.95).all()
    torch.testing.assert_close(weights[8], torch.ones(T, T).tril() / torch.arange(1, T + 1)[:, None])
    assert all(text[s] == text[t] for t, s in (weights[1] > 0.1).nonzero().tolist())
    last = weights[:, -1]
    assert {text[s] for s in last[3].topk(3).indices} == {"e", "a"}
    assert last[5].topk(2).indices.sort()[0].tolist() == [1, 7]  # what followed the two other t
    apart = (weights[:, None] - weights).abs().amax(dim=(-1, -2))
    assert (apart + torch.eye(16)).min() > 0.2


def test_neither_few_heads_nor_many_do_the_jobs():
    at_previous = {n: weights_of(n).diagonal(-1, -2, -1).amin(dim=-1).max() for n in (1, 16, 64)}
    assert at_previous[1] < 0.2
    assert at_previous[16] > 0.9
    assert at_previous[64] < 0.5


@pytest.mark.parametrize("n_head", [2**power for power in range(7)])
def test_the_sheet_holds_every_map_in_reading_order(n_head):
    weights = torch.rand(n_head, T, T)
    maps = multi_head.sheet(weights)
    columns = (maps.shape[1] + 1) // (T + 1)
    assert maps.shape[0] <= maps.shape[1]
    for h in range(n_head):
        down, right = h // columns * (T + 1), h % columns * (T + 1)
        assert torch.equal(maps[down : down + T, right : right + T], weights[h])
    assert maps.sum().item() == pytest.approx(weights.sum().item()), "nothing stands between the maps"
