"""The loss of a text: which blocks are measured, how they are weighed, and what is refused."""

import pytest
import torch
import torch.nn.functional as F
from tqdm.std import tqdm as loss_tqdm
from training.small import DATA, tiny

from attention_course.gpt import BigramLanguageModel
from attention_course.training import evaluate, loss


@pytest.mark.parametrize("length", [8, 14, 15, 400])
def test_evaluate_equals_a_loop_over_the_blocks(length):
    model, ids, losses = tiny(), DATA.val[:length], []
    with torch.no_grad():
        for start in range(0, length - 7, 7):
            logits = model(ids[start : start + 7][None])[0]
            losses += [-logits[t].log_softmax(-1)[ids[start + t + 1]].item() for t in range(7)]
    assert evaluate(model, ids, "float32") == pytest.approx(sum(losses) / len(losses), abs=1e-5)


def test_evaluate_weighs_each_piece_alike():
    """65 blocks: 64 are seen at once, and the last one by itself."""
    model, ids = tiny(), DATA.train[: 65 * 7 + 1]
    loss = F.cross_entropy(model(ids[:-1].view(65, 7)).flatten(0, 1), ids[1:]).item()
    assert evaluate(model, ids, "float32") == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("mode", [True, False])
def test_measuring_is_without_dropout_and_leaves_the_mode_as_it_was(mode):
    plain, model = tiny(), tiny(dropout=0.9).train(mode)
    assert evaluate(model, DATA.val) == evaluate(plain, DATA.val)
    assert model.training == mode
    with pytest.raises(ValueError, match="GPT: ids holds"):
        evaluate(model, DATA.val + 1000)
    assert model.training == mode


def test_evaluate_refuses_a_text_that_is_too_short():
    with pytest.raises(ValueError, match="The validation text has 7 tokens, too few for block_size = 7"):
        evaluate(tiny(), DATA.val[:7])


@pytest.mark.parametrize(("blocks", "expected"), [(1, [0]), (2, [0, 28]), (3, [0, 18, 37]), (56, range(56))])
def test_some_blocks_are_spread_over_the_text(blocks, expected):
    model, ids = tiny(), DATA.val[: 57 * 7]  # 56 blocks, and a rest
    each = [evaluate(model, ids[7 * i : 7 * i + 8], "float32") for i in expected]
    mean = sum(each) / len(each)
    assert evaluate(model, ids, "float32", blocks) == pytest.approx(mean, abs=1e-5)
    if blocks == 56:
        assert evaluate(model, ids, "float32", 57) == evaluate(model, ids, "float32", blocks)


@pytest.mark.parametrize("blocks", [0, -1])
def test_evaluate_refuses_no_blocks(blocks):
    with pytest.raises(ValueError, match=rf"evaluate: blocks = {blocks}, expected an integer of at least 1"):
        evaluate(tiny(), DATA.val, blocks=blocks)


def test_evaluate_refuses_an_unknown_precision():
    with pytest.raises(ValueError, match="There is no precision called 'int8'"):
        evaluate(tiny(), DATA.val, "int8")


@pytest.mark.parametrize(("blocks", "rank", "shown"), [(640, 0, True), (576, 0, False), (640, 1, False)])
def test_a_long_evaluation_shows_how_far_it_is(monkeypatch, capsys, blocks, rank, shown):
    asked = []

    def bar(*given, **options):
        asked.append(options)
        return loss_tqdm(*given, **options | {"delay": 0})

    monkeypatch.setattr(loss, "tqdm", bar)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: rank > 0)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    model, ids = BigramLanguageModel(40), torch.zeros(blocks * 2 + 1, dtype=torch.int64)
    model.block_size = 2
    evaluate(model, ids)
    assert ("evaluating" in capsys.readouterr().err) == shown
    assert asked == [{"leave": False, "delay": 5, "disable": not shown}]
