"""A bug in what a model gives to training is found by a question of `gradients`."""

import pytest
import torch
import torch.nn.functional as F
from examine.right import Changed, Experts
from torch import nn
from torch.utils.checkpoint import checkpoint

from attention_course.examine import beginning, gradients
from attention_course.examine.one_file import Layer, Model
from attention_course.examine.question import ModelVariants
from attention_course.examine.wrapped_model import WrappedModel


def asked(question, model):
    return question.put_to(ModelVariants(WrappedModel(model, 29, 24)), {})


class Kept(Model):
    """Holds what has no parameters to train."""

    def __init__(self, unused):
        super().__init__()
        shared, teacher = nn.GELU(), Model().requires_grad_(False)
        self.kept, self.teacher = {"loss": nn.CrossEntropyLoss()}, [teacher]
        self.last = nn.Sequential(nn.Linear(29, 29), shared, nn.Linear(29, 29), shared)
        if unused:
            self.unused = nn.Linear(29, 29)

    def forward(self, ids, targets=None):
        return self.last(super().forward(ids)[0]), None


@pytest.mark.parametrize("unused", [False, True])
def test_modules_without_parameters_may_be_shared_and_stand_anywhere(unused):
    finding = asked(gradients.gradients, Kept(unused))
    assert finding.verdict == ("wrong" if unused else "right"), finding
    assert ("unused.weight" in finding.measured) == unused


def test_what_has_a_part_in_training_alone_is_doubtful():
    class Noisy(Model):
        def __init__(self):
            super().__init__()
            self.spread = nn.Linear(29, 29)

        def forward(self, ids, targets=None):
            logits, _ = super().forward(ids)
            noise = torch.randn_like(logits) if self.training else 0
            return logits + noise * F.softplus(self.spread(logits)) if self.training else logits, None

    finding = asked(gradients.gradients, Noisy())
    assert (finding.verdict, "spread.weight" in finding.measured) == ("doubtful", True), finding


class SecondHead(Model):
    """Returns more than logits, or adds what they are to its loss."""

    def __init__(self, given):
        super().__init__(29, 24)
        self.second, self.given = nn.Linear(29, 1), given

    def forward(self, ids, targets=None):
        logits, loss = super().forward(ids, targets)
        value = self.second(logits)
        if self.given == "a loss":
            return logits, None if loss is None else loss + value.square().mean()
        return (logits, loss, value) if self.given == "a value" else (logits, loss)


@pytest.mark.parametrize(
    ("given", "verdict", "of_loss"),
    [("a value", "doubtful", "right"), ("a loss", "doubtful", "doubtful"), ("nothing", "wrong", "right")],
)
def test_a_second_head_is_told_from_one_that_is_not_used(given, verdict, of_loss):
    for question, expected in ((gradients.gradients, verdict), (beginning.own_loss, of_loss)):
        finding = asked(question, SecondHead(given))
        assert finding.verdict == expected, finding
        assert ("own" in finding.cause or "second head" in finding.cause) == (expected == "doubtful")


def test_a_head_without_a_use_is_found_beside_an_argument_y_that_is_no_targets():
    class Labelled(SecondHead):
        def forward(self, ids, y=None):
            assert y is None or y.shape == ids.shape[:1]
            return super().forward(ids)[0]

    finding = asked(gradients.gradients, Labelled("nothing"))
    assert "second.weight" in finding.measured, finding


def test_a_sum_in_place_that_backward_needs_as_it_was_is_told():
    class InPlace(Model):
        def forward(self, ids, targets=None):
            logits, _ = super().forward(ids)
            powers = logits.exp()
            logits = logits + powers
            powers += 1
            return logits, None

    finding = asked(gradients.gradients, InPlace())
    assert (finding.verdict, "x = x + ..." in finding.cause) == ("wrong", True), finding


def test_gradients_pass_reentrant_checkpoints():
    class Checkpointed(Model):
        def forward(self, ids, targets=None):
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=True)
            return self.head(self.norm(x)), None

    variants = ModelVariants(WrappedModel(Checkpointed(), 29, 24))
    assert variants.is_copy
    for question in (gradients.gradients, gradients.gradient_sizes):
        finding = question.put_to(variants, {})
        assert finding.verdict == "right", finding


@pytest.mark.parametrize(("detached", "verdict"), [(False, "right"), (True, "doubtful")])
def test_a_tied_head_that_is_detached_is_doubtful(detached, verdict):
    class Tied(Model):
        def forward(self, ids, targets=None):
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            for layer in self.layers:
                x = layer(x)
            table = self.tokens.weight.detach() if detached else self.tokens.weight
            return self.norm(x) @ table.T, None

    model = Tied()
    del model.head
    assert asked(gradients.gradients, model).verdict == verdict


@pytest.mark.parametrize(("fixed", "verdict"), [(False, "right"), (True, "doubtful")])
def test_a_last_layer_without_a_row_for_each_token_is_right(fixed, verdict):
    class Adaptive(Model):
        def __init__(self):
            super().__init__()
            self.head = nn.AdaptiveLogSoftmaxWithLoss(32, 29, [5, 12], div_value=2)
            self.register_buffer("fixed", torch.randn(29, 32))

        def forward(self, ids, targets=None):
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            for layer in self.layers:
                x = layer(x)
            logits = self.head.log_prob(x.flatten(0, 1)).view(*ids.shape, 29)
            return logits + fixed * x @ self.fixed.T, None

    model = Adaptive()
    del model.norm
    assert asked(gradients.gradients, model).verdict == verdict


@pytest.mark.parametrize("tied", [False, True])
def test_two_parameters_in_one_place_are_doubtful(tied):
    model = Model(tied=tied)
    assert asked(gradients.gradients, model).verdict == "right"
    model.tokens.weight = nn.Parameter(model.head.weight.data)
    finding = asked(gradients.gradients, model)
    assert finding.verdict == "doubtful", finding
    assert "tokens.weight and head.weight are two parameters" in finding.measured


@pytest.mark.parametrize(
    ("question", "make", "verdict"),
    [
        (gradients.gradients, Model, "right"),
        (gradients.gradients, lambda: SecondHead("a value"), "doubtful"),
        (gradients.gradient_sizes, Model, "right"),
    ],
)
def test_sparse_gradients_are_looked_at(question, make, verdict):
    model = make()
    model.tokens = nn.Embedding(29, 32, sparse=True)
    finding = asked(question, model)
    assert finding.verdict == verdict, finding


def test_embeddings_that_are_not_trained_are_doubtful():
    model = Model()
    model.tokens.requires_grad_(False)
    finding = asked(gradients.gradients, model)
    assert finding.verdict == "doubtful", finding
    assert "not trained: tokens.weight." in finding.measured


def test_an_expert_that_was_not_chosen_is_told_from_a_layer_that_is_left_out():
    class NeverTheFirst(Experts):
        def __init__(self, like):
            super().__init__(like, many=64)
            self.router.register_forward_hook(lambda *given: given[-1].index_fill(-1, torch.tensor(0), -1e9))

    class LeftOut(Layer):
        def forward(self, x):
            return x

    torch.manual_seed(0)
    model = Changed(NeverTheFirst)
    assert asked(gradients.gradients, model).verdict == "doubtful"
    model.layers.append(LeftOut(32, 4, 24, 0.0, "learned", True))
    model.layers[-1].up = NeverTheFirst(model.layers[-1].up)
    assert asked(gradients.gradients, model).verdict == "wrong"


class Weighed(Experts):
    """The weight of the chosen expert is divided by the sum of the chosen, itself; and then by another."""

    def forward(self, x):
        share = self.router(x).softmax(dim=-1)
        kept, chosen = share.max(dim=-1, keepdim=True)
        whole = kept.sum(dim=-1, keepdim=True) if self.alone else share.sum(dim=-1, keepdim=True)
        return sum(kept / whole * (chosen == number) * each(x) for number, each in enumerate(self.each))


@pytest.mark.parametrize(("alone", "verdict"), [(False, "right"), (True, "doubtful")])
def test_a_router_that_gets_only_rounding_for_a_gradient_is_doubtful(alone, verdict):
    Weighed.alone = alone
    finding = asked(gradients.gradients, Changed(lambda layer: Weighed(layer, many=4)))
    assert (finding.verdict, "router" in finding.measured) == (verdict, alone), finding


class Halved(torch.autograd.Function):
    """The same numbers, with a backward() that is wrong by a factor."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / 2


def mean_detached(layer, inputs, output):
    x = inputs[0]
    return output + x.mean(dim=-1, keepdim=True) - x.mean(dim=-1, keepdim=True).detach()


def test_a_gradient_that_is_not_the_slope_is_seen_and_where():
    halved, detached, straight = Model(), Model(), Model()
    halved.layers[0].down.register_forward_hook(lambda *call: Halved.apply(call[2]))
    detached.norm.register_forward_hook(mean_detached)
    straight.head.register_forward_hook(lambda *call: call[2].detach() + (call[2] - call[2].detach()))
    off = asked(gradients.slope, halved)
    assert (off.verdict, off.measured.split()[-1][:9]) == ("doubtful", "layers.0.")
    assert asked(gradients.slope, detached).verdict == "doubtful"
    assert asked(gradients.slope, straight).verdict == "right"


def test_a_slope_that_cannot_be_measured_is_not_asked_for():
    rough = Model()
    rough.head.register_forward_hook(lambda *call: call[2] + (1e9 * call[2]).sin().detach())
    assert asked(gradients.slope, rough).verdict == "not asked"


def test_a_layer_of_pytorch_with_a_mask_in_float32_has_the_right_gradient():
    class Theirs(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.head = nn.Embedding(29, 32), nn.Linear(32, 29)
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

        def forward(self, ids):
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
            return self.head(self.layer(self.tokens(ids), src_mask=mask))

    assert asked(gradients.slope, Theirs()).verdict == "right"


class NoGrad(Model):
    @torch.no_grad()
    def forward(self, ids, targets=None):
        return super().forward(ids, targets)


class Inference(Model):
    @torch.inference_mode()
    def forward(self, ids, targets=None):
        return super().forward(ids, targets)


class Detached(Model):
    def forward(self, ids, targets=None):
        return super().forward(ids)[0].detach()


class InTraining(Model):
    def forward(self, ids, targets=None):
        with torch.set_grad_enabled(self.training and torch.is_grad_enabled()):
            return super().forward(ids, targets)


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [(NoGrad, "wrong"), (Inference, "wrong"), (Detached, "wrong"), (InTraining, "not asked")],
)
def test_logits_without_a_gradient_are_found_and_are_no_error_of_the_examiner(kind, verdict):
    variants = ModelVariants(WrappedModel(kind(29, 24), 29, 24))
    finding = gradients.gradients.put_to(variants, {})
    assert finding.verdict == verdict, finding
    assert verdict == "not asked" or "torch.no_grad()" in finding.cause
    for question in (gradients.slope, gradients.gradient_sizes):
        assert question.put_to(variants, {}).verdict == "not asked"


@pytest.mark.parametrize(("rows", "verdict"), [(2 * 24 - 1, "right"), (2 * 24 + 20, "doubtful")])
def test_a_table_of_distances_may_have_rows_for_what_comes_later(rows, verdict):
    class Distances(Model):
        def __init__(self):
            super().__init__(29, 24)
            self.table = nn.Parameter(torch.zeros(rows, 7))

        def forward(self, ids, targets=None):
            t = torch.arange(ids.shape[1])
            away = self.table[(t[:, None] - t).clamp(min=0) + 23]  # (T, T, 7)
            return super().forward(ids)[0] + F.pad(away.sum(dim=1), (0, 22))

    finding = asked(gradients.gradients, Distances())
    assert finding.verdict == verdict, finding


class Positions(Model):
    """Positions as minGPT has them, of shape (1, T, C)."""

    rows = slice(None)

    def __init__(self, make=nn.Parameter):
        super().__init__(29, 24)
        self.moves = make(torch.randn(1, 24, 32))

    def forward(self, ids, targets=None):
        logits = super().forward(ids)[0]
        return (
            logits
            + (self.moves[:, : ids.shape[1]] * 1.0)[:, self.rows].mean(dim=-1, keepdim=True).sin() * logits
        )


class OneRow(Positions):
    rows = slice(1)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Positions, ""),
        (OneRow, "23 rows of moves (24, 32)"),
        (lambda: Positions(torch.Tensor.requires_grad_), "What is in Positions.moves is not in"),
    ],
)
def test_a_table_that_is_no_embedding_is_looked_at(model, says):
    finding = asked(gradients.gradients, model())
    assert (finding.verdict, says in finding.measured) == ("wrong" if says else "right", True), finding


class Placed(Model):
    """A table of positions or distances, and what is made of it and of the embeddings (B, T, C)."""

    def __init__(self, table, place):
        super().__init__(29, 24, positions="none")
        self.table, self.place = nn.Parameter(torch.randn(table)), place

    def forward(self, ids, targets=None):
        x = self.place(self.table, self.tokens(ids))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)), None


def same_from_7(table, x):
    return x + table[torch.arange(x.shape[1]).clamp(max=7)]


@pytest.mark.parametrize(
    ("table", "place", "verdict"),
    [
        ((48, 32), lambda table, x: x + table[: x.shape[1]], "right"),
        ((48, 48), lambda table, x: x + table[: x.shape[1], : x.shape[1]].tril() @ x, "right"),
        ((48, 32), lambda table, x: x + table[-x.shape[1] :].flip(0).cumsum(dim=0), "right"),
        ((95, 32), lambda table, x: x + table[47:][: x.shape[1]].cumsum(dim=0), "right"),
        ((48, 32), lambda table, x: x + table[:1], "wrong"),
        ((48, 32), same_from_7, "wrong"),
        ((24, 32), same_from_7, "wrong"),
        ((48, 32), lambda table, x: x + x @ table[:24].T @ table[:24], "wrong"),
        ((100, 32), lambda table, x: x + table[: x.shape[1]], "right"),
        ((48, 1, 32), lambda table, x: x + table[: x.shape[1], 0], "right"),
        ((24, 1, 32), lambda table, x: x + table[0, 0], "wrong"),
        ((4, 32, 32), lambda table, x: x + sum(x @ matrix for matrix in table), "right"),
        ((4, 32, 32), lambda table, x: x + x @ table[2], "doubtful"),
    ],
    ids=[
        "positions",
        "mixed",
        "from the end",
        "distances",
        "all at 0",
        "alike from 7",
        "alike, short",
        "half a matrix",
        "positions, longer than it says",
        "positions, (T, 1, C)",
        "positions, (T, 1, C), all at 0",
        "matrices",
        "one of four matrices",
    ],
)
def test_positions_behind_what_was_read_get_no_gradient(table, place, verdict):
    wrapped = WrappedModel(Placed(table, place), 29, 24)
    wrapped.whole = 48
    finding = gradients.gradients.put_to(ModelVariants(wrapped), {})
    assert finding.verdict == verdict, finding


class Distant(Model):
    """A table by distance (rows, width) that moves scores, as T5's and Shaw's do, or values."""

    def __init__(self, row_of, width, values, make):
        super().__init__(29, 24, positions="none")
        self.row_of, self.width, self.values = row_of, width, values
        self.table = make(24, width) if make is nn.Embedding else make(torch.randn(24, width))

    def forward(self, ids, targets=None):
        x, t = self.tokens(ids), torch.arange(ids.shape[1])
        away = self.row_of(t[:, None] - t)
        added = (
            self.table(away) if isinstance(self.table, nn.Embedding) else self.table[away]
        )  # (T, T, width)
        scores = x @ x.mT / 32**0.5
        if not self.values:
            scores = scores + torch.einsum("btw,tsw->bts", x[..., : self.width], added)
        weights = scores.masked_fill(t > t[:, None], -1e9).softmax(dim=-1)
        x = x + weights @ x
        if self.values:
            x = x + torch.einsum("bts,tsw->btw", weights, added).repeat(1, 1, 32 // self.width)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)), None


def bucket(away):
    """The row of T5: a distance for itself up to 7, and those behind it share rows."""
    far = 8 + (away.clamp(min=8) / 8).log2() * 4
    return torch.where(away < 8, away.clamp(min=0), far.long().clamp(max=23))


def clipped(away):
    """The row of Shaw, with a clip of 11 and rows for what comes later."""
    return away.clamp(-11, 11) + 11


@pytest.mark.parametrize("make", [nn.Embedding, nn.Parameter])
@pytest.mark.parametrize(("width", "values"), [(4, False), (32, False), (8, True)])
@pytest.mark.parametrize("row_of", [bucket, clipped])
def test_rows_for_distances_that_do_not_occur_are_doubtful(row_of, width, values, make):
    finding = asked(gradients.gradients, Distant(row_of, width, values, make))
    assert finding.verdict == "doubtful", finding
    assert "distances" in finding.cause


@pytest.mark.parametrize("row_of", [lambda t: t * 0, lambda t: t.clamp(max=7), lambda t: t.clamp(min=1)])
def test_rows_for_positions_that_do_not_occur_are_wrong(row_of):
    model = Model()
    model.places.register_forward_pre_hook(lambda module, given: row_of(given[0]))
    finding = asked(gradients.gradients, model)
    assert finding.verdict == "wrong", finding


@pytest.mark.parametrize(
    ("row_of", "verdict"),
    [(lambda t: t, "right"), (lambda t: t * 0, "doubtful"), (lambda t: t // 12, "doubtful")],
)
def test_an_embedding_of_positions_for_longer_texts_is_looked_at(row_of, verdict):
    class Longer(Model):
        def forward(self, ids, targets=None):
            x = self.tokens(ids) + self.places(row_of(torch.arange(ids.shape[1])))
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x)), None

    assert asked(gradients.gradients, Longer(29, 100)).verdict == verdict


@pytest.mark.parametrize(("name", "verdict"), [("b_keys", "right"), ("keys", "doubtful")])
def test_a_bias_of_keys_for_each_head_is_no_matrix_with_a_small_gradient(name, verdict):
    class Biased(Model):
        def __init__(self):
            super().__init__()
            self.register_parameter(name, nn.Parameter(torch.randn(4, 8)))
            self.values = nn.Parameter(torch.randn(4, 8))

        def forward(self, ids, targets=None):
            logits = super().forward(ids)[0]
            faint = 1e-6 * self.get_parameter(name).sum() + self.values.sum()
            return logits * (1 + faint), None

    assert asked(gradients.gradient_sizes, Biased()).verdict == verdict


@pytest.mark.parametrize(("rows", "verdict"), [(slice(29), "right"), (slice(35, 64), "wrong")])
def test_a_vocabulary_may_be_rounded_up(rows, verdict):
    class Padded(Model):
        def __init__(self):
            super().__init__(29, 24)
            self.more = nn.Sequential(nn.Linear(29, 32), nn.Linear(32, 64))

        def forward(self, ids, targets=None):
            return self.more(super().forward(ids)[0])[..., rows]

    assert asked(gradients.gradients, Padded()).verdict == verdict


def test_what_a_model_keeps_for_a_picture_is_no_hindrance():
    class Keeps(Model):
        def forward(self, ids, targets=None):
            logits = super().forward(ids)[0]
            self.last, self.all = logits, [logits]
            return logits

    model = Keeps(29, 24)
    model(torch.zeros(1, 3, dtype=torch.long))
    variants = ModelVariants(WrappedModel(model, 29, 24))
    assert variants.is_copy
    assert gradients.gradients.put_to(variants, {}).verdict == "right"
    assert variants.given.copied()
