"""The GPT in one file is right in all its forms; test_right_models examines them."""

import pytest
import torch
import torch.nn.functional as F

from attention_course.examine.one_file import Model

FORMS = [{"positions": kind} for kind in ("learned", "sinusoidal", "rotary", "alibi")]
FORMS += [{"pre_norm": False}, {"tied": True}, {"layers": 1, "heads": 1}]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_logits_and_loss(form):
    model, ids = Model(vocab_size=7, block_size=11, width=8, **form), torch.randint(7, (3, 5))
    logits, loss = model(ids)
    assert logits.shape == (3, 5, 7)
    assert loss is None
    again, loss = model(ids, ids)
    assert torch.equal(logits, again)
    torch.testing.assert_close(loss, F.cross_entropy(logits.reshape(-1, 7), ids.reshape(-1)))


@pytest.mark.parametrize("tied", [True, False])
def test_only_a_tied_model_shares_the_matrix_of_the_tokens(tied):
    model = Model(tied=tied)
    assert (model.head.weight is model.tokens.weight) == tied


def test_it_writes_on_beyond_its_block():
    ids = torch.randint(7, (2, 10))
    written = Model(vocab_size=7, block_size=11).generate(ids, max_new_tokens=4)
    assert written.shape == (2, 14)
    assert torch.equal(written[:, :10], ids)
