"""How a model is used: caches of any kind, a reference, dtypes, padding, buffers, options of generate."""

import re

import pytest
import torch
from examine.real import held_out, table
from examine.real.listed import BUGS
from examine.right import BLOCK, Returned, V
from sampling import sampled
from torch import nn

from attention_course.examine import QUESTIONS, examine, examine_here, findings, using
from attention_course.examine.one_file import Model
from attention_course.examine.question import ModelVariants
from attention_course.examine.wrapped_model import WrappedModel
from attention_course.gpt import GPT, GPTConfig

pytestmark = pytest.mark.usefixtures("shapes_unchecked")

FOUND = {
    "gemma2_sliding_mask_leaks": "No leak from the future",
    "hf_dynamic_ntk_remembers": "No text leaves a trace in the model",
    "hf_ctrl_inputs_embeds_in_place": "The ids stay as they were",
    "buildnanogpt_tied_to_embedding_init": "The first loss is near ln V",
    "hf_jetmoe_labels_shifted_twice": "Its own loss is the cross-entropy",
    "hf_mbart_labels_not_shifted": "Its own loss is the cross-entropy",
    "nanochat_cached_decode_ignores_window": "With a cache the logits are the same",
    "xtransformers_sdpa_causal_with_cache": "With a cache the logits are the same",
    "opt_scaled_twice": "It computes what its reference does",
    "mistral_window_off_by_one": "It computes what its reference does",
    "hf_rope_in_bfloat16": "Its own dtype is precise enough",
    "hf_gpt2_left_padding_positions": "Padding on the left changes nothing",
    "bacformer_rope_buffers_not_restored": "A loaded copy gives the same logits",
    "litllama_crop_by_prompt_length": "It keeps writing past its block",
    "hf_repetition_penalty": "Its sampling options do what they say",
}
DOUBTED = {"hf_mbart_labels_not_shifted", "bacformer_rope_buffers_not_restored"}
CAUSES = {
    "hf_jetmoe_labels_shifted_twice": "It shifts twice",
    "hf_mbart_labels_not_shifted": "learns to copy its input",
    "opt_scaled_twice": "Is the scale applied twice",
    "mistral_window_off_by_one": "a window that is off by one",
    "hf_repetition_penalty": "multiply negative ones",
    "hf_gpt2_left_padding_positions": "generate doesn't make any",
}


def wrapped(name, broken):
    torch.manual_seed(0)
    bug = BUGS[name]
    model = bug.make(broken)
    made, given = WrappedModel(model, model.config.vocab_size, model.config.block_size), bug.given(model)
    made.beside, made.step = (given.get("reference"),), given.get("step")
    return made


@pytest.mark.parametrize("name", FOUND)
def test_a_real_bug_is_found_and_its_mended_version_is_right(name):
    vital = [question for question in QUESTIONS if question.vital]
    (question,) = (question for question in QUESTIONS if question.name == FOUND[name])
    broken, mended = (examine_here(wrapped(name, broken), [*vital, question]) for broken in (True, False))
    finding = broken.findings[0]
    assert finding.name == FOUND[name]
    assert finding.verdict == ("doubtful" if name in DOUBTED else "wrong")
    assert CAUSES.get(name, "") in finding.cause
    assert {each.verdict for each in mended.findings} == {"right"}, mended


ALL = {**BUGS, **held_out.BUGS}
TEXT = table.TABLE.read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| \[(\w+)\]\S+ \| .*? \| (.*) \|$", TEXT, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(ALL, every=4))
def test_the_table_of_real_bugs_is_true_and_no_mended_version_is_called_wrong(name):
    first, mended = ROWS[name].split(" | ")
    assert not mended.startswith("wrong")
    assert table.verdicts_of(table.findings(ALL[name], broken=False)) == mended
    assert first in ("nothing", table.verdicts_of(table.findings(ALL[name], broken=True)[:1]))


def beside(reference, model=None):
    made = WrappedModel(model or Model(V, BLOCK), V, BLOCK)
    made.beside = (reference,)
    return using.follows_reference.put_to(ModelVariants(made), {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("changed", [None, "layers.1.norm_b.weight", "head.weight"])
def test_parameters_that_are_not_those_of_the_reference_are_told(changed, dtype):
    model, reference = Model(V, BLOCK), Model(V, BLOCK).to(dtype)
    reference.load_state_dict(model.state_dict())
    if changed:
        with torch.no_grad():
            reference.get_parameter(changed).mul_(1.5)
    finding = beside(reference, model)
    assert finding.verdict == ("wrong" if changed else "right"), finding
    assert not changed or f"Of the parameters {changed} differs most, by up to" in finding.measured
    assert not changed or "load_state_dict" in finding.cause


def test_a_reference_that_computes_otherwise_is_told_from_one_of_other_parameters():
    class Twice(Model):
        def forward(self, ids, targets=None):
            return 2 * super().forward(ids)[0]

    model, reference = Model(V, BLOCK), Twice(V, BLOCK)
    reference.load_state_dict(model.state_dict())
    finding = beside(reference, model)
    assert (finding.verdict, "parameters of the model" in finding.measured) == ("wrong", True), finding
    assert "Are the parameters the same?" in finding.cause


@pytest.mark.parametrize(
    "reference", [lambda ids: None, lambda ids: ids.upper(), Returned(Model(V, BLOCK), after=str)]
)
def test_a_reference_without_logits_is_told(reference):
    finding = beside(reference)
    assert (finding.verdict, "The reference gives no logits" in finding.measured) == ("wrong", True), finding
    assert "examiner" not in finding.cause


def test_a_leak_is_traced_to_its_module():
    class Mean(nn.Module):
        def forward(self, x):
            return x + x.mean(dim=1, keepdim=True)

    class Leaking(Model):
        def __init__(self):
            super().__init__(V, BLOCK)
            self.layers[1].down = nn.Sequential(self.layers[1].down, Mean())

    report = examine(Leaking(), vocab_size=V, block_size=BLOCK, train=False)
    assert report.findings[0].name == "No leak from the future"
    assert (
        "It arises in layers.1.down.1 (Mean), whose output has shape (2, 13, 32)."
        in report.findings[0].measured
    )


@pytest.mark.parametrize("T", [2, 5, BLOCK])
def test_a_leak_of_any_length_and_of_a_function_is_told(T):
    def leaks(ids):
        return torch.nn.functional.one_hot(ids.flip(1), V).float()

    class Leaking(Model):
        def forward(self, ids):
            return super().forward(ids)[0].flip(1)

    for model in (leaks, Leaking(V, T)):
        finding = findings.no_leak.put_to(ModelVariants(WrappedModel(model, V, T)), {})
        assert finding.verdict == "wrong"
        assert "later tokens change an earlier output." in finding.measured


def test_a_residual_that_is_added_in_place_does_not_blur_where_a_leak_arises():
    class Mean(nn.Module):
        def forward(self, x):
            return x.mean(dim=1, keepdim=True).expand_as(x)

    class Adding(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept, self.mean = nn.Identity(), Mean()

        def forward(self, x):
            x = self.kept(x.clone())
            x += self.mean(x)
            return x

    class Leaking(Model):
        def __init__(self):
            super().__init__(V, BLOCK)
            self.layers[1].down = nn.Sequential(self.layers[1].down, Adding())

    finding = findings.no_leak.put_to(ModelVariants(WrappedModel(Leaking(), V, BLOCK)), {})
    assert "arises in layers.1.down.1.mean (Mean)" in finding.measured


def test_what_did_not_change_is_not_said_to_have_changed():
    report = examine_here(wrapped("hf_ctrl_inputs_embeds_in_place", broken=False), [findings.input_unchanged])
    assert report.findings[0].measured.endswith("ids changed, nor did inputs_embeds.")


def test_a_call_in_eval_mode_leaves_no_trace_in_train_mode():
    class Stuck(Model):
        def __init__(self):
            super().__init__(V, BLOCK)
            self.drops, self.asked = nn.Dropout(0.5), False

        def forward(self, ids):
            self.asked |= not self.training
            logits, _ = super().forward(ids)
            return logits if self.asked else self.drops(logits)

    finding = findings.stateless.put_to(ModelVariants(WrappedModel(Stuck(), V, BLOCK)), {})
    assert finding.verdict == "wrong"
    assert "switched off for good" in finding.cause


def test_what_each_call_in_train_mode_moves_is_not_blamed_on_the_call_in_eval_mode():
    """DeepSeek's router adds to its biases after each step; by the third call other experts are chosen."""

    class Balancing(Model):
        def __init__(self):
            super().__init__(V, BLOCK)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, ids):
            logits, _ = super().forward(ids)
            moved = logits + 0.1 * (self.calls > 1)
            self.calls += self.training
            return moved

    finding = findings.stateless.put_to(ModelVariants(WrappedModel(Balancing(), V, BLOCK)), {})
    assert finding.verdict == "right", finding


def test_a_buffer_that_chooses_experts_has_an_effect():
    class Balanced(Model):
        def __init__(self):
            super().__init__(V, BLOCK)
            self.register_buffer("balance", torch.zeros(V))

        def forward(self, ids):
            logits, _ = super().forward(ids)
            return logits.scatter_add(-1, (logits + self.balance).topk(2).indices, torch.ones(*ids.shape, 2))

    finding = using.buffers.put_to(ModelVariants(WrappedModel(Balanced(), V, BLOCK)), {})
    assert finding.verdict == "right", finding


def test_what_a_model_computes_in_train_mode_alone_is_doubtful():
    class Skips(Model):
        def forward(self, ids):
            layers, self.layers = self.layers, self.layers[:1] if self.training else self.layers
            try:
                return super().forward(ids)
            finally:
                self.layers = layers

    finding = findings.stateless.put_to(ModelVariants(WrappedModel(Skips(V, BLOCK), V, BLOCK)), {})
    assert (finding.verdict, "if self.training" in finding.cause) == ("doubtful", True), finding


def test_a_part_that_the_first_call_puts_in_is_no_change_of_mode():
    class Grows(Model):
        def forward(self, ids):
            self.grown = nn.Sequential(nn.Identity())
            return super().forward(ids)

    finding = findings.stateless.put_to(ModelVariants(WrappedModel(Grows(V, BLOCK), V, BLOCK)), {})
    assert finding.verdict == "right", finding


class Starting(Model):
    """A cache that lies in the model, as in Llama's first release; `late` forgets where the tokens stand."""

    def __init__(self, late=0):
        super().__init__(V, BLOCK)
        self.late, self.read = late, torch.zeros(1, 0, dtype=torch.long)

    def forward(self, ids, start_pos):
        self.read = torch.cat([self.read[:, :start_pos], ids], dim=1) if start_pos else ids
        return super().forward(self.read)[0][:, start_pos - self.late * (start_pos > 0) :][:, : ids.shape[1]]


@pytest.mark.parametrize(("late", "verdict"), [(0, "right"), (1, "wrong")])
def test_a_cache_in_the_model_is_asked_by_start_pos(late, verdict):
    report = examine(Starting(late), vocab_size=V, block_size=BLOCK, train=False)
    finding = next(f for f in report.findings if f.name == "With a cache the logits are the same")
    assert finding.verdict == verdict, finding


def test_a_buffer_without_effect_is_doubtful():
    class Kept(Model):
        def __init__(self):
            super().__init__(V, BLOCK)
            self.register_buffer("scale", torch.ones(3))

    report = examine(Kept(), vocab_size=V, block_size=BLOCK, train=False)
    assert report.headline.endswith("Look at this: Every buffer has an effect.")
    assert "1 of 3 have none: scale." in report.findings[0].measured


def test_what_is_ignored_is_not_asked_and_what_is_required_has_to_be():
    name, asked = "Padding on the left changes nothing", dict(vocab_size=V, block_size=BLOCK, train=False)
    report = examine(Model(V, BLOCK), **asked, require=[name])
    assert not report
    assert report.findings[0].name == name
    assert "required" in report.findings[0].expected
    report = examine(Model(V, BLOCK), **asked, ignore=[name])
    assert report
    assert name not in {finding.name for finding in report.findings}
    assert len(report.findings) == sum(not question.train for question in QUESTIONS) - 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ignore": ["No leak from the futur"]}, "Did you mean 'No leak from the future'?"),
        ({"require": "No leak from the future"}, "expected a list of names"),
        ({"require": ["It memorizes one batch"], "train": False}, "not asked: it takes a training"),
        ({"require": ["The past is used"], "ignore": ["The past is used"]}, "not asked: it is in ignore"),
        ({"reference": 3}, "reference is int, expected a function"),
        ({"reference": Model}, "reference is the class Model, expected a function"),
        ({"step": "step"}, "step is str, expected a function"),
    ],
)
def test_what_else_is_given_is_checked_first(given, says):
    with pytest.raises((TypeError, ValueError), match=says.replace("?", r"\?")):
        examine(Model(V, BLOCK), vocab_size=V, block_size=BLOCK, **given)


class Counts(nn.Module):
    """A bigram model of counts: whole numbers, and no parameters."""

    def forward(self, ids):
        return (torch.arange(V * V).view(V, V) % 7).float()[ids]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("make", "verdict"),
    [
        (lambda dtype: Returned(Model(V, 64), after=lambda x: x[0].to(dtype).float()), "doubtful"),
        (lambda dtype: Returned(Model(V, 64), after=lambda x: x[0].to(dtype)), "right"),
        (lambda _: Returned(Model(V, 64), torch.bfloat16, lambda x: x[0].float()), "right"),
        (lambda _: Returned(Model(V, 64).bfloat16(), after=lambda x: x[0].float()), "right"),
        (lambda _: Counts(), "right"),
    ],
)
def test_logits_that_are_rounded_behind_the_last_layer_are_doubted(make, verdict, dtype):
    finding = using.own_dtype.put_to(ModelVariants(WrappedModel(make(dtype), V, 64)), {})
    assert finding.verdict == verdict, finding
    assert verdict == "right" or str(dtype) in finding.measured


def cache_of(model):
    return using.cached.put_to(ModelVariants(WrappedModel(model, V, BLOCK)), {})


class OtherCache(Model):
    """Right models with a cache of their own, or with another meaning of the word."""

    def __init__(self, use):
        super().__init__()
        self.use = use

    def forward(self, ids, cache=None):
        self.use(cache)
        return super().forward(ids)[0]


def flag(cache):
    return "kept" if cache else "not kept"


def keep_in(cache):
    cache.seen = 1


@pytest.mark.parametrize("use", [lambda cache: cache[0], lambda cache: cache.append(0), flag, keep_in])
def test_a_cache_of_another_kind_is_not_asked_for(use):
    def unless_none(cache):
        return None if cache is None else use(cache)

    finding = cache_of(OtherCache(unless_none))
    assert finding.verdict == "not asked", finding
    assert "another kind" in finding.measured


def test_a_cache_that_is_wrong_in_a_long_text_is_found():
    class Late(GPT):
        def forward(self, ids, cache=None):
            late = cache is not None and len(cache) > 16
            return super().forward(ids, cache) * (2 if late else 1)

    finding = cache_of(Late(GPTConfig(29, 24, n_embd=32)))
    assert finding.verdict == "wrong"
    assert "right for a short text" in finding.cause


def test_a_cache_that_answers_for_the_last_token_alone_is_doubted():
    class Last(GPT):
        def forward(self, ids, cache=None):
            logits = super().forward(ids, cache)
            return logits if cache is None else logits[:, -1:]

    finding = cache_of(Last(GPTConfig(V, BLOCK, n_embd=32)))
    assert (finding.verdict, "logits of (4, 1, 29)" in finding.measured) == ("doubtful", True)


class Hiding(Model):
    """It hides tokens, and counts the others, by an attention_mask, of which `read` makes two masks."""

    def __init__(self, read):
        super().__init__(V, BLOCK)
        self.read = read
        self.places = nn.Embedding(BLOCK, 32)

    def forward(self, ids, attention_mask=None):
        shown = torch.ones_like(ids) if attention_mask is None else attention_mask
        seen, counted = self.read(shown)
        places = (counted.cumsum(dim=1) - 1).clamp(min=0)
        x = self.tokens(ids) + self.places(places)
        hidden = (torch.ones(ids.shape[1], ids.shape[1]).triu(1) > 0) | (seen[:, None] == 0)
        weights = torch.zeros(hidden.shape).masked_fill(hidden, -1e9).softmax(dim=-1)
        return self.head(self.norm(x + weights @ x))

    def generate(self, ids, max_new_tokens, attention_mask=None, temperature=1.0):
        mask = torch.ones_like(ids) if attention_mask is None else attention_mask
        for _ in range(max_new_tokens):
            logits = self(ids, mask)[:, -1] / temperature
            ids = torch.cat([ids, logits.softmax(dim=-1).multinomial(1)], dim=1)
            mask = torch.cat([mask, mask[:, -1:]], dim=1)
        return ids


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        (lambda mask: (mask, mask), "right"),
        (lambda mask: (mask[:1], mask), "doubtful"),
        (lambda mask: (mask, mask[:1]), "doubtful"),
        (lambda mask: (mask, mask[-1:]), "doubtful"),
        (lambda mask: (mask.amax(dim=0)[None], mask), "doubtful"),
    ],
)
def test_padding_that_is_taken_from_one_text_for_all_is_found(read, verdict):
    finding = using.left_padding.put_to(ModelVariants(WrappedModel(Hiding(read), V, BLOCK)), {})
    assert finding.verdict == verdict, finding
