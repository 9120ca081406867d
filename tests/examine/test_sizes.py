"""What a model tells of its sizes need not be said."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from examine.right import BLOCK, V, ours, theirs
from torch import nn

from attention_course.examine import examine, wrap
from attention_course.examine.one_file import Model
from attention_course.examine.question import ModelVariants
from attention_course.examine.writing import generates

pytestmark = pytest.mark.usefixtures("shapes_unchecked")


class Told(nn.Module):
    """A model with attributes, that of `inside` apart."""

    def __init__(self, **attributes):
        super().__init__()
        self.inside = Model(V, BLOCK)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, ids):
        return self.inside(ids)[0]


def of(**config):
    return Told(config=SimpleNamespace(**config))


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        (of(vocab_size=29, max_position_embeddings=24, block_size=7), (29, 24, 24)),
        (of(vocab_size=29, n_positions=24), (29, 24, 24)),
        (of(vocab_size=29, block_size=128), (29, 128, 128)),
        (of(vocab_size=29, n_ctx=1024), (29, 128, 1024)),
        (of(vocab_size=25, padded_vocab_size=29, block_size=24), (29, 24, 24)),
        (of(vocab_size=29, max_position_embeddings=None, n_positions=True, seq_length=24), (29, 24, 24)),
        (of(text_config=SimpleNamespace(vocab_size=29, max_position_embeddings=24)), (29, 24, 24)),
        (Told(config={"vocab_size": 29, "block_size": 24}), (29, 24, 24)),
        (Told(vocab_size=29, block_size=24), (29, 24, 24)),
        (Told(vocab_size=29, config=SimpleNamespace(block_size=24)), (29, 24, 24)),
    ],
)
def test_sizes_are_found(model, sizes):
    wrapped = wrap(model)
    assert (wrapped.vocab_size, wrapped.block_size, wrapped.whole) == sizes
    assert bool(wrapped.remarks) == (wrapped.whole > wrapped.block_size)


def test_a_size_of_any_library_is_an_int_from_then_on():
    wrapped = wrap(Model(V, BLOCK), np.int64(V), np.int32(BLOCK))
    assert {type(size) for size in (wrapped.vocab_size, wrapped.block_size, wrapped.whole)} == {int}


def test_what_is_given_is_taken():
    wrapped = wrap(of(vocab_size=1, n_ctx=1024), vocab_size=29, block_size=24)
    assert (wrapped.vocab_size, wrapped.block_size, wrapped.whole) == (29, 24, 24)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (
            Told(block_size=24),
            r"no vocab_size is given, and Told tells none, expected model.config",
        ),
        (of(vocab_size=29), r"no block_size is given, .* max_position_embeddings.* Pass block_size="),
        (abs, "Pass vocab_size=..., an integer"),
        (of(vocab_size=1, block_size=24), "vocab_size = 1, expected an integer of at least 2"),
    ],
)
def test_what_is_not_found_is_asked_for(model, says):
    with pytest.raises(ValueError, match=f"^examine: .*{says}"):
        examine(model)


@pytest.mark.filterwarnings("ignore")  # PyTorch plans to move its quantized layers
def test_a_model_without_values_or_gradients_is_refused():
    class Skeleton(nn.Module):
        def __init__(self):
            self.block_size = BLOCK

        def forward(self, ids):
            return ids

    quantized = nn.Sequential(nn.Embedding(V, 8), torch.ao.nn.quantized.dynamic.Linear(8, V))
    for model, says in (
        (Model(V, BLOCK).to("meta"), "meta device"),
        (quantized, "quantized"),
        (Skeleton(), "super"),
    ):
        with pytest.raises(ValueError, match=f"^examine: the model .*{says}"):
            examine(model, vocab_size=V, block_size=BLOCK)


def test_rows_of_positions_that_roberta_reserves_are_not_read():
    model = theirs("Roberta")  # BLOCK + 1 rows, of which that of the padding is the first
    assert wrap(model).block_size == BLOCK
    with torch.no_grad():
        model(torch.ones(1, BLOCK, dtype=torch.long))
        with pytest.raises((IndexError, RuntimeError)):
            model(torch.ones(1, BLOCK + 1, dtype=torch.long))


def test_the_end_of_a_block_is_not_judged_by_its_beginning():
    variants = ModelVariants(wrap(ours(block_size=200)))
    assert variants.remarks == ["By its block_size it reads 200 tokens; here, 128. Pass block_size."]
    finding = generates.put_to(variants, {})
    assert finding.verdict == "not asked"
    assert "Pass block_size=200" in finding.measured
