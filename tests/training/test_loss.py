"""The loss of a text: which blocks are measured, how they are weighted, and what is refused."""

import pytest
import torch
import torch.nn.functional as F
from training.small import DATA, tiny

from attention_course.gpt import BigramLanguageModel
from attention_course.training import evaluate, loss


@pytest.mark.parametrize("blocks", [1, 2, 57, 65])  # 64 are measured at once
@pytest.mark.parametrize("rest", [1, 7])
def test_evaluate_is_the_mean_loss_of_all_targets(blocks, rest):
    model, ids = tiny(), DATA.train[: 7 * blocks + rest]
    x, y = ids[: 7 * blocks].view(-1, 7), ids[1 : 7 * blocks + 1]
    expected = F.cross_entropy(model(x).flatten(0, 1), y).item()
    assert evaluate(model, ids, "float32") == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("blocks", "expected"), [(1, [0]), (2, [0, 28]), (3, [0, 18, 37]), (57, range(56))])
def test_some_blocks_are_spread_over_the_text(blocks, expected):
    model, ids = tiny(), DATA.val[: 57 * 7]  # 56 blocks, and a rest
    each = [evaluate(model, ids[7 * i : 7 * i + 8], "float32") for i in expected]
    assert evaluate(model, ids, "float32", blocks) == pytest.approx(sum(each) / len(each), abs=1e-5)


@pytest.mark.parametrize("mode", [True, False])
def test_measuring_is_without_dropout_and_leaves_the_mode_as_it_was(mode):
    plain, model = tiny(), tiny(dropout=0.9).train(mode)
    assert evaluate(model, DATA.val) == evaluate(plain, DATA.val)
    assert model.training == mode


@pytest.mark.parametrize(("blocks", "rank", "shown"), [(640, 0, True), (576, 0, False), (640, 1, False)])
def test_a_long_evaluation_shows_how_far_it_is(monkeypatch, capsys, blocks, rank, shown):
    bar = loss.tqdm
    monkeypatch.setattr(loss, "tqdm", lambda *given, delay, **options: bar(*given, **options))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: rank > 0)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    model = BigramLanguageModel(40)
    model.block_size = 2
    evaluate(model, torch.zeros(blocks * 2 + 1, dtype=torch.int64))
    assert ("evaluating" in capsys.readouterr().err) == shown
