"""A bug in what a model computes is found by a question of `findings`; see also test_planted."""

import math
import re

import pytest
import torch
from examine.right import BLOCK, Padded, Recurrent, V
from torch import nn
from torch.nn import functional as F

from attention_course.examine import findings
from attention_course.examine.findings import leak_cause
from attention_course.examine.one_file import Model
from attention_course.examine.planted import Bug, plant
from attention_course.examine.question import ModelVariants
from attention_course.examine.wrapped_model import WrappedModel

pytestmark = pytest.mark.usefixtures("shapes_unchecked")


class OverTime(Model):
    """A norm over time, of which one number has no spread; the text has more tokens than one."""

    def forward(self, ids, targets=None):
        logits, loss = super().forward(ids)
        return (logits - logits.mean(1, keepdim=True)) / logits.std(1, correction=0, keepdim=True), loss


class Changing(Model):
    """A right model, and something done to its logits."""

    def __init__(self, change):
        super().__init__(V, BLOCK)
        self.change = change

    def forward(self, ids, targets=None):
        return self.change(super().forward(ids)[0])


def mean_from(place):
    """Return a change: tokens from `place` on see the mean of them all."""
    return lambda x: torch.cat([x[:, :place], x[:, place:] + x[:, place:].mean(1, keepdim=True)], dim=1)


def looking_ahead(first, last):
    """Return a change: outputs first to last see output last + 1."""
    seen = torch.zeros(BLOCK, 1).index_fill(0, torch.arange(first, last + 1), 1.0)
    return lambda x: x + seen[: x.shape[1]] * x[:, last + 1 : last + 2] if x.shape[1] > last + 1 else x


def asked(question, model):
    return question.put_to(ModelVariants(WrappedModel(model, 29, 24)), {})


@pytest.mark.parametrize(("noise", "verdict"), [(nn.Dropout(0.5), "right"), (nn.RReLU(), "doubtful")])
def test_what_experts_draw_that_are_given_few_tokens_is_no_leak(noise, verdict):
    class Sparse(Model):
        def __init__(self):
            super().__init__(V, BLOCK)
            self.expert = nn.Sequential(nn.Linear(V, 8), noise, nn.Linear(8, V))
            self.drops = nn.Dropout(0.2)

        def forward(self, ids, targets=None):
            logits, _ = super().forward(ids)
            chosen = logits[..., :1] > 0
            for some in (chosen, ~chosen):  # it draws for as many as it is given
                logits = logits.masked_scatter(some, self.expert(logits[some[..., 0]]))
            return self.drops(logits)

    for question in (findings.batch_apart, findings.no_leak):
        finding = asked(question, Sparse())
        assert finding.verdict == verdict, finding
        assert verdict == "right" or "draws random numbers" in finding.cause


@pytest.mark.parametrize(("size", "verdict"), [(8, "doubtful"), (0, "wrong")])
def test_attention_in_chunks_is_told_from_a_context_that_is_cut(size, verdict):
    model, place = Model(), torch.arange(24)
    for layer in model.layers:
        layer.future |= place // size != place[:, None] // size if size else place < 8
        layer.future.fill_diagonal_(False)
    finding = asked(findings.full_context, model)
    assert (finding.verdict, "in chunks" in finding.cause) == (verdict, bool(size)), finding


def test_logarithms_of_counts_are_not_said_to_be_cut_off():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("counts", torch.randint(9, (29, 29, 29)))

        def forward(self, ids):
            return self.counts[F.pad(ids, (1, 0))[:, :-1], ids].log1p()

    finding = asked(findings.raw, Counts())
    assert (finding.verdict, "logarithms of counts" in finding.cause) == ("doubtful", True), finding


def test_dropout_before_softmax_is_found():
    class Early(Model):
        def forward(self, ids, targets=None):
            logits, _ = super().forward(ids)
            later = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
            scores = (logits @ logits.mT).masked_fill(later, -torch.inf)
            return F.dropout(scores, 0.5, self.training).softmax(dim=-1) @ logits

    finding = asked(findings.finite, Early(V, BLOCK))
    assert (finding.verdict, "after softmax" in finding.cause) == ("wrong", True), finding


@pytest.mark.parametrize(
    ("question", "change"),
    [
        (findings.no_leak, mean_from(BLOCK - 2)),
        (findings.no_leak, mean_from(17)),
        (findings.no_leak, looking_ahead(17, 18)),
        (findings.batch_apart, lambda x: x + x.mean(0) * (len(x) > 4)),
        (findings.batch_apart, lambda x: x + x.mean(0) * (x.shape[1] > 16)),
        (findings.prefix_alone, lambda x: x * math.log(max(x.shape[1], 16))),
    ],
)
def test_what_is_wrong_only_in_long_texts_or_large_batches_is_found(question, change):
    assert asked(question, Changing(change)).verdict == "wrong"


def test_the_logits_of_a_long_text_and_a_large_vocabulary_are_not_of_many_texts_at_once():
    class Noting(Model):
        most = 0

        def forward(self, ids, targets=None):
            Noting.most = max(Noting.most, ids.numel())
            return super().forward(ids)

    finding = findings.batch_apart.put_to(
        ModelVariants(WrappedModel(Noting(1024, 512, layers=1), 1024, 512)), {}
    )
    assert (finding.verdict, Noting.most) == ("right", 2 * 512), finding


PADDED = Bug(
    "keys of id 28 hidden",
    [
        [
            "x = self.tokens(ids)",
            "x = self.tokens(ids)\n        for layer in self.layers: layer.pad = ids == 28",
        ],
        [
            "self.future[:T, :T], -1e9",
            "self.future[:T, :T] | self.pad[:, None, None] & ~torch.eye(T, dtype=torch.bool), -1e9",
        ],
    ],
)
NAMED = Bug("named", [["nn.Embedding(vocab_size, width)", "nn.Embedding(vocab_size, width, padding_idx=28)"]])


@pytest.mark.parametrize("tied", [False, True])
def test_an_id_that_no_later_token_sees_is_doubtful_unless_it_is_named_as_padding(tied):
    finding = asked(findings.past_used, plant(PADDED, tied=tied))
    assert (finding.verdict, "after id 28 the next" in finding.measured) == ("doubtful", True)
    assert "padding_idx" in finding.cause
    for bugs in ([PADDED, NAMED], []):
        assert asked(findings.past_used, plant(*bugs, tied=tied)).verdict == "right"


@pytest.mark.parametrize(
    ("change", "verdict", "said"),
    [
        (lambda x: torch.cat([x[..., :-1], x[..., :1]], dim=-1), "wrong", "Ids 0 and 28 get the same"),
        (lambda x: x.clamp(-2, 2), "doubtful", "None goes beyond 2, and"),
        (lambda x: x.clamp(min=-2), "doubtful", "None goes beyond -2, and"),
        (lambda x: 2 * (x / 2).tanh(), "right", ""),
        (F.silu, "doubtful", "They reach from"),
        (F.gelu, "doubtful", "They reach from"),
        (F.leaky_relu, "doubtful", "They reach from"),
        (F.relu, "wrong", "is negative"),
        (F.softplus, "wrong", "is negative"),
        (torch.sigmoid, "wrong", "is negative"),
        (lambda x: 30 * (x / 7.5).sigmoid(), "doubtful", "is negative"),
        (lambda x: 5 * x + 1, "right", ""),
        (lambda x: x / 8, "right", ""),
        (lambda x: (3 * x).log_softmax(dim=-1), "right", ""),
        (lambda x: x.bfloat16(), "right", ""),
        (lambda x: torch.cat([x[..., :-2], x[..., :2] * 0 - 5], dim=-1), "doubtful", "of id 27 is -5 every"),
    ],
)
def test_logits_that_are_cut_off_or_copied_are_told(change, verdict, said):
    finding = asked(findings.raw, Changing(change))
    assert (finding.verdict, said in finding.measured) == (verdict, True), finding


@pytest.mark.parametrize("limit", [torch.tanh, F.softsign])
def test_a_limit_that_logits_do_not_reach_yet_is_found(limit):
    class Bounded(Model):
        def forward(self, ids, targets=None):
            return limit(super().forward(ids)[0] / 4)

    finding = asked(findings.raw, Bounded(V, BLOCK))
    assert (finding.verdict, "between -1 and 1" in finding.measured) == ("wrong", True), finding


@pytest.mark.parametrize("where", [(), ("layers.0",), ("layers.1.down",), ("tokens",)])
def test_dropout_on_the_logits_is_found_and_elsewhere_it_is_right(where):
    class Dropping(Model):
        def forward(self, ids, targets=None):
            logits, _ = super().forward(ids)
            return logits if where else F.dropout(logits, 0.1, self.training)

    model = Dropping(V, BLOCK)
    for name in where:
        model.get_submodule(name).register_forward_hook(
            lambda module, _, x: F.dropout(x, 0.2, module.training)
        )
    finding = asked(findings.raw, model)
    assert finding.verdict == ("right" if where else "wrong"), finding
    assert where or "dropout after the last layer" in finding.cause


@pytest.mark.parametrize(
    ("fill", "verdict"), [("-30.0", "doubtful"), ("-100.0", "doubtful"), ("-1e4", "right"), ("-1e9", "right")]
)
@pytest.mark.parametrize("sizes", [{}, {"heads": 1}, {"layers": 1, "positions": "rotary"}])
def test_a_mask_that_large_scores_overcome_is_doubted(fill, verdict, sizes):
    torch.manual_seed(0)
    bugs = [] if fill == "-1e9" else [Bug("a finite fill", [["-1e9", fill]])]
    finding = asked(findings.no_leak, plant(*bugs, **sizes))
    assert finding.verdict == verdict, finding
    assert verdict == "right" or "finite number" in finding.cause


def test_one_token_that_gives_nan_is_named():
    finding = asked(findings.prefix_alone, OverTime())
    assert finding.measured == "NaN or inf for a text of length 1."
    assert "norm over time" in finding.cause


@pytest.mark.parametrize(
    ("question", "bug", "words"),
    [
        (
            findings.batch_apart,
            "positions of the batch",
            ["batch_first=True", "x.size(1) is T", "same order"],
        ),
        (findings.past_used, "attention not added", ["F.scaled_dot_product_attention expects (B, H, T, D)"]),
        (findings.prefix_alone, "positions counted from the end", ["padding on the left"]),
        (findings.no_leak, "no mask", ["scores = scores.masked_fill(", "view(B, H, T, D)", "over time"]),
    ],
)
def test_the_commonest_causes_are_named_in_order(question, bug, words):
    finding = asked(question, plant(bug))
    places = [finding.cause.index(each) for each in words]
    assert places == sorted(places)


@pytest.mark.parametrize("vocab_size", [8, 32, 65, 300])  # the layers have 32 and 64 channels
def test_the_layer_that_leaks_is_named_whatever_the_vocabulary(vocab_size):
    model = WrappedModel(plant("no mask", vocab_size=vocab_size), vocab_size, 24)
    finding = findings.no_leak.put_to(ModelVariants(model), {})
    assert "It arises in layers.0" in finding.measured


def test_a_prefix_is_said_to_be_the_first_tokens():
    said = asked(findings.prefix_alone, plant("positions counted from the end")).measured
    assert re.match(r"The first \d+ of 24 tokens, read alone: ", said)


SEEN = torch.ones(16, 16, dtype=torch.bool)


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        (SEEN.tril(1), "next"),
        (SEEN.tril(3), "next"),
        (SEEN.triu(1), "inverted"),
        (SEEN, "all"),
        (SEEN & ~torch.eye(16, dtype=torch.bool).roll(12, 1), "all"),
        (SEEN.tril() | (torch.arange(16) == 4), ""),
    ],
)
def test_the_pattern_of_a_leak_names_its_cause(table, cause):
    assert leak_cause(table) == cause


def test_without_a_past_the_residual_stream_is_not_asked_for():
    assert asked(findings.residual, plant("attention not added")).verdict == "not asked"


def test_the_residual_stream_is_seen_at_any_size_of_the_embeddings():
    model = plant()
    model.tokens.weight.data /= 1000  # what attention adds is then far larger
    assert asked(findings.residual, model).verdict == "right"


class Sums(nn.Module):
    """What attention is in a transformer is here a sum over time, without a mean."""

    def __init__(self, residual, norm):
        super().__init__()
        self.residual, self.norm, self.tokens = residual, norm, nn.Embedding(V, 32)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
        self.into, self.head = nn.Linear(32, 32), nn.Linear(32, V)

    def forward(self, ids):
        x = self.into(self.tokens(ids))
        for layer in self.layers:
            made = layer(self.norm(x, (32,))).cumsum(1)
            x = x + made if self.residual else made
        return self.head(F.layer_norm(x, (32,)))


@pytest.mark.parametrize("norm", [F.layer_norm, lambda x, _: x])
@pytest.mark.parametrize(("residual", "verdict"), [(True, "right"), (False, "wrong")])
def test_a_residual_stream_is_seen_beside_sums_over_time(residual, verdict, norm):
    torch.manual_seed(0)
    finding = asked(findings.residual, Sums(residual, norm))
    assert finding.verdict == verdict, finding


@pytest.mark.parametrize(
    "where", [(0, 0, 3), (slice(None), 1, 3), (0, slice(None), 3), (0, slice(BLOCK - 1, None))]
)
@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_what_is_not_finite_in_some_places_is_no_padding(where, value):
    class Odd(Model):
        def forward(self, ids, targets=None):
            logits, loss = super().forward(ids)
            logits = logits.clone()
            logits[where] = value
            return logits, loss

    assert asked(findings.finite, Odd()).verdict == "wrong"


def test_bugs_of_a_model_with_padding_are_found():
    class Leaking(Padded):
        def forward(self, ids, targets=None):
            return super().forward(ids.flip(1))

    padded = ModelVariants(WrappedModel(Leaking(-torch.inf), 29, 24))
    assert findings.finite.put_to(padded, {}).verdict == "right"
    assert findings.no_leak.put_to(padded, {}).verdict == "wrong"


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_late_tokens_that_share_a_position_are_doubtful(layers):
    class Clamped(Model):
        def forward(self, ids, targets=None):
            x = self.tokens(ids) + self.places(
                torch.arange(ids.shape[1]).clamp(max=len(self.places.weight) - 1)
            )
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x)), None

    for rows, verdict in ((BLOCK, "right"), (10, "doubtful")):
        torch.manual_seed(0)
        model = Clamped(V, BLOCK, layers=layers)
        model.places = torch.nn.Embedding(rows, 32)
        finding = asked(findings.order_used, model)
        assert finding.verdict == verdict, finding
    assert "clamped" in finding.cause


@pytest.mark.parametrize(("block_size", "every"), [(128, 100), (256, 8)])
def test_a_leak_between_neighbours_is_found_in_a_long_block(block_size, every):
    """One is, up to a block of 128; in longer ones some are. The first tokens are tried in pairs anyway."""

    class Leaking(Model):
        def forward(self, ids, targets=None):
            logits, loss = super().forward(ids)
            places = torch.arange(ids.shape[1] - 1)
            places = places[(places >= 20) & (places % every == 12 % every)]
            return logits.index_add(1, places, logits[:, places + 1]), loss

    variants = ModelVariants(WrappedModel(Leaking(V, block_size, layers=1), V, block_size))
    finding = findings.no_leak.put_to(variants, {})
    assert finding.verdict == "wrong", finding
    assert finding.measured.startswith("In a full block")


def test_texts_that_are_cut_apart_at_an_id_are_doubtful():
    class Packed(Model):
        def forward(self, ids, targets=None):
            logits = super().forward(ids)[0]
            for at in range(1, ids.shape[1]):
                again = super().forward(ids[:, at:])[0]
                logits = torch.cat(
                    [logits[:, :at], torch.where(ids[:, at, None, None] == 7, again, logits[:, at:])], 1
                )
            return logits

    finding = asked(findings.full_context, Packed(V, BLOCK))
    assert finding.verdict == "doubtful", finding
    assert "separates texts" in finding.cause


def test_a_context_that_is_cut_is_not_said_to_fade():
    cut = asked(findings.full_context, plant("no token sees more than 4 back"))
    assert "window" in cut.cause
    fading = findings.full_context.put_to(ModelVariants(WrappedModel(Recurrent(), 29, 256)), {})
    assert "fades" in fading.cause
    assert asked(findings.full_context, plant("the first id overwritten")).verdict == "wrong"


@pytest.mark.parametrize(
    ("vocab_size", "read_as"),
    [
        (1000, lambda ids: ids.to(torch.uint8).long()),
        (1000, lambda ids: ids // 2),
        (29, lambda ids: ids.clamp(max=27)),
        (1000, lambda ids: ids.clamp(max=998)),
        (29, lambda ids: ids.where(ids != 7, 8)),
    ],
)
def test_ids_that_are_read_as_one_are_found(vocab_size, read_as):
    class Merging(Model):
        def forward(self, ids, targets=None):
            return super().forward(read_as(ids))

    variants = ModelVariants(WrappedModel(Merging(vocab_size, BLOCK), vocab_size, BLOCK))
    finding = findings.own_token.put_to(variants, {})
    assert finding.verdict == "wrong"
    assert "can't tell two ids apart" in finding.cause


@pytest.mark.parametrize(("tables", "verdict"), [(1, "doubtful"), (2, "right")])
def test_hashed_embeddings_may_share_rows(tables, verdict):
    class Hashed(Model):
        def forward(self, ids, targets=None):
            x = sum(
                table(ids * (7 if place else 1) // 20**place % 20) for place, table in enumerate(self.hashed)
            )
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x)), None

    model = Hashed()
    model.tokens, model.hashed = None, torch.nn.ModuleList(torch.nn.Embedding(20, 32) for _ in range(tables))
    assert asked(findings.own_token, model).verdict == verdict


class WholeBlock(torch.nn.Module):
    """Bengio's model of 2003: one matrix reads the whole block."""

    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(V + 1, 16, padding_idx=V)
        self.read, self.head = torch.nn.Linear(16 * BLOCK, 64), torch.nn.Linear(64, V)

    def forward(self, ids):
        x = self.tokens(torch.nn.functional.pad(ids, (BLOCK - 1, 0), value=V))
        return self.head(self.read(x.unfold(1, BLOCK, 1).transpose(2, 3).flatten(2)).tanh())


def test_a_model_that_reads_the_block_by_one_matrix_is_not_called_wrong():
    finding = asked(findings.residual, WholeBlock())
    assert finding.verdict == "doubtful", finding
    assert "matrix of its own" in finding.cause


def test_a_mode_that_a_model_sets_or_does_not_get_is_told():
    class SetsIt(Model):
        def forward(self, ids, targets=None):
            return super().forward(ids, targets if self.eval() else None)

    class DoesNotGetIt(Model):
        def __init__(self):
            super().__init__(V, BLOCK)
            self.dropouts = [nn.Dropout(0.1)]

        def forward(self, ids, targets=None):
            logits, loss = super().forward(ids, targets)
            return self.dropouts[0](logits), loss

    assert "calls eval()" in asked(findings.stateless, SetsIt(V, BLOCK)).cause
    assert "plain list" in asked(findings.repeatable, DoesNotGetIt()).cause


def test_texts_that_are_seldom_dropped_in_train_mode_are_random():
    class Dropped(Model):
        def forward(self, ids, targets=None):
            logits, loss = super().forward(ids, targets)
            kept = torch.empty(len(ids), 1, 1).bernoulli_(0.98) / 0.98
            return logits * kept if self.training else logits, loss

    assert asked(findings.stateless, Dropped(V, BLOCK)).verdict == "right"


def test_an_error_about_a_dtype_is_not_put_down_to_a_size():
    class Mixed(Model):
        def forward(self, ids, targets=None):
            return self.head(self.tokens(ids).half()), None

    finding = asked(findings.answers, Mixed(V, BLOCK))
    assert "dtype" in finding.measured
    assert "block_size" not in finding.cause
