"""A model's own generate is compared with its logits, whatever its arguments are called."""

import math

import pytest
import torch
from examine.right import theirs

from attention_course.examine import writing
from attention_course.examine.one_file import Model
from attention_course.examine.question import ModelVariants
from attention_course.examine.wrapped_model import WrappedModel
from attention_course.gpt import GPT, Cache, GPTConfig, generate


def asked(question, model):
    return question.put_to(ModelVariants(WrappedModel(model, 29, 24)), {})


def test_generate_is_called_by_position():
    class Named(Model):
        def generate(self, prompt, n):
            return super().generate(prompt, n)

    for question in (writing.generates, writing.writes_predictions):
        finding = question.put_to(ModelVariants(WrappedModel(Named(), 29, 24)), {})
        assert finding.verdict == "right", finding


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (lambda model, ids: ids.upper(), "AttributeError: 'Tensor' object has no attribute 'upper'"),
        (lambda model, ids: model(ids)[:, -1], "TypeError: tuple indices"),
        (lambda model, ids: torch.cat(ids, ids[:, -1:]), "TypeError: cat()"),
        (lambda model, ids: None, "generate returns None"),
    ],
)
def test_an_error_of_generate_is_doubtful(broken, says):
    class Broken(Model):
        def generate(self, ids, max_new_tokens):
            return broken(self, ids)

    for question in (writing.generates, writing.writes_predictions):
        finding = asked(question, Broken())
        assert (finding.verdict, says in finding.measured) == ("doubtful", True), finding
        assert finding.expected


def test_a_generate_that_raises_past_the_block_is_told_what_to_read():
    class All(Model):
        def generate(self, ids, max_new_tokens):
            for _ in range(max_new_tokens):
                ids = torch.cat([ids, self(ids)[0][:, -1].softmax(dim=-1).multinomial(1)], dim=1)
            return ids

    finding = asked(writing.generates, All())
    assert finding.verdict == "doubtful"
    assert "IndexError" in finding.measured
    assert "ids[:, -block_size:]" in finding.cause


def test_a_generate_of_other_arguments_is_not_asked():
    class Other(Model):
        def generate(self, ids, max_new_tokens, eos):
            return ids

    assert asked(writing.generates, Other()).verdict == "not asked"


def test_a_function_that_was_put_into_a_model_is_not_asked():
    model = Model(29, 24)
    model.generate = lambda ids, max_new_tokens: Model.generate(model, ids, max_new_tokens)
    for question in (writing.generates, writing.writes_predictions):
        finding = asked(question, model)
        assert (finding.verdict, "Write a method" in finding.measured) == ("not asked", True), finding


def test_a_cache_that_is_not_emptied_is_found():
    class Kept(Model):
        kept = None

        def generate(self, ids, max_new_tokens):
            goes_on = self.kept is not None and len(self.kept) == len(ids)
            before = self.kept if goes_on else ids[:, :0]
            written = super().generate(torch.cat([before, ids], dim=1), max_new_tokens)
            self.kept = written[:, -4:]
            return written[:, before.shape[1] :]

    assert asked(writing.writes_predictions, Kept()).verdict == "wrong"


@pytest.mark.parametrize("greedy", [True, False])
def test_a_text_that_ends_and_is_padded_is_not_wrong(greedy):
    class Ends(Model):
        end, padding = 3, 7

        def generate(self, ids, max_new_tokens, do_sample=not greedy):
            ended = torch.zeros(len(ids), 1, dtype=torch.bool)
            for _ in range(max_new_tokens):
                logits = self(ids)[0][:, -1]
                sampled = logits.softmax(dim=-1).multinomial(1)
                drawn = sampled if do_sample else logits.argmax(dim=-1, keepdim=True)
                drawn = drawn.where(~ended, torch.tensor(self.padding))
                ids, ended = torch.cat([ids, drawn], dim=1), ended | (drawn == self.end)
            return ids

    class AllAlike(Ends):
        def generate(self, ids, max_new_tokens, do_sample=not greedy):
            written = super().generate(ids, max_new_tokens, do_sample)
            written[:, ids.shape[1] + 1 :] = self.padding
            return written

    verdicts = []
    for seed in range(3):
        torch.manual_seed(seed)
        verdicts.append([asked(writing.writes_predictions, kind()).verdict for kind in (Ends, AllAlike)])
    assert {right for right, _ in verdicts} <= {"right", "doubtful"}
    assert "doubtful" in {right for right, _ in verdicts}
    assert {wrong for _, wrong in verdicts} == {"wrong"}


def test_a_default_of_any_type_may_be_why_it_writes_something_else():
    class NoRepeat(Model):
        def generate(self, ids, max_new_tokens, no_repeat=True):
            for _ in range(max_new_tokens):
                logits = self(ids[:, -24:])[0][:, -1].scatter(1, ids[:, -1:], -torch.inf)
                ids = torch.cat([ids, logits.softmax(dim=-1).multinomial(1)], dim=1)
            return ids

    for seed in range(3):
        torch.manual_seed(seed)
        finding = asked(writing.writes_predictions, NoRepeat())
        assert finding.verdict == "doubtful", finding
        assert "no_repeat=True" in finding.measured


def test_an_end_in_the_config_of_transformers_is_put_off():
    model = theirs("Llama")
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = 2
    finding = asked(writing.writes_predictions, model)
    assert finding.verdict == "right", finding
    assert model.generation_config.eos_token_id == 2


def drawn(logits, temperature=1.0, top_k=None, **others):
    """Return the next tokens (B, 1)."""
    if top_k is not None:
        logits = logits.masked_fill(logits < logits.topk(min(top_k, 29)).values[:, -1:], -torch.inf)
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    return (logits / temperature).softmax(dim=-1).multinomial(1)


class Drawing(Model):
    """A model whose generate draws with `next_of`."""

    next_of = staticmethod(drawn)

    def written(self, ids, new, **options):
        for _ in range(new):
            ids = torch.cat([ids, self.next_of(self(ids[:, -self.block_size :])[0][:, -1], **options)], dim=1)
        return ids


class GreedyByDefault(Drawing):  # as that of LLMs-from-scratch
    def generate(self, ids, max_new_tokens, temperature=0.0, top_k=None):
        return self.written(ids, max_new_tokens, temperature=temperature, top_k=top_k)


class SecondByDefault(Drawing):  # its branch for a temperature of 0 is wrong
    def next_of(self, logits, temperature):
        return logits.topk(2).indices[:, 1:] if temperature == 0 else drawn(logits, temperature)

    def generate(self, ids, max_new_tokens, temperature=0.0):
        return self.written(ids, max_new_tokens, temperature=temperature)


class HotByDefault(Drawing):
    def generate(self, ids, max_new_tokens, temperature=1.5):
        return self.written(ids, max_new_tokens, temperature=temperature)


class KeepsAShare(Drawing):  # as that of lucidrains
    def generate(self, prompt, seq_len, temperature=1.0, filter_thres=0.9):
        top_k = math.ceil((1 - filter_thres) * 29)
        return self.written(prompt, seq_len, temperature=temperature, top_k=top_k)[:, prompt.shape[1] :]


class Beams(Drawing):
    def generate(self, ids, max_new_tokens, num_beams=3, do_sample=False):
        return torch.cat([self.best(text[None], max_new_tokens, num_beams) for text in ids])

    def best(self, text, new, beams):
        scored = [(0.0, text)]
        for _ in range(new):
            grown = []
            for score, text in scored:
                logits = self(text[:, -self.block_size :])[0][0, -1]
                for value, token in zip(*logits.log_softmax(dim=-1).topk(beams), strict=True):
                    grown.append((score + float(value), torch.cat([text, token.view(1, 1)], dim=1)))
            scored = sorted(grown, key=lambda each: -each[0])[:beams]
        return scored[0][1]


class NoPairTwice(Drawing):
    def generate(self, ids, max_new_tokens, temperature=1.0, no_repeat_ngram_size=2):
        for _ in range(max_new_tokens):
            logits = self(ids[:, -self.block_size :])[0][:, -1]
            after = (ids[:, :-1] == ids[:, -1:]).float() * no_repeat_ngram_size
            seen = torch.zeros_like(logits).scatter_add(1, ids[:, 1:], after)
            ids = torch.cat([ids, drawn(logits.masked_fill(seen > 0, -torch.inf), temperature)], dim=1)
        return ids


class NeverUnknown(Drawing):
    def next_of(self, logits, temperature):
        return drawn(logits.index_fill(-1, torch.tensor([0]), -torch.inf), temperature)

    def generate(self, ids, max_new_tokens, temperature=1.0):
        return self.written(ids, max_new_tokens, temperature=temperature)


class OneText(Drawing):
    @torch.no_grad()
    def generate(self, ids, max_new_tokens):
        assert len(ids) == 1
        return self.written(ids, max_new_tokens)


class KBest(Drawing):
    def generate(self, ids, max_new_tokens, temperature=1.0, k=2):
        return self.written(ids, max_new_tokens, temperature=temperature, top_k=k)


def nucleus_of(logits, p):
    ordered, places = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    beyond = (ordered.cumsum(dim=-1) - ordered >= p).gather(-1, places.argsort(dim=-1))
    return logits.masked_fill(beyond, -torch.inf)


class BothFilters(Drawing):
    def next_of(self, logits, top_k, top_p):
        if top_p is not None:
            logits = nucleus_of(logits, top_p)
        return drawn(logits, top_k=top_k)

    def generate(self, ids, max_new_tokens, top_k=None, top_p=None):
        return self.written(ids, max_new_tokens, top_k=top_k, top_p=top_p)


class TheOtherOrder(BothFilters):
    def next_of(self, logits, top_k, top_p):
        if top_k is not None:
            logits = logits.masked_fill(logits < logits.topk(min(top_k, 29)).values[:, -1:], -torch.inf)
        return super().next_of(logits, None, top_p)


class OneFilter(BothFilters):
    def next_of(self, logits, top_k, top_p):
        return super().next_of(logits, top_k, None if top_k else top_p)


class OneFilterElse(BothFilters):
    def next_of(self, logits, top_k, top_p):
        return super().next_of(logits, None if top_p else top_k, top_p)


class Stops(Drawing):
    def generate(self, ids, max_new_tokens):
        return self.written(ids, min(max_new_tokens, self.block_size - ids.shape[1]))


class EitherOr(Drawing):
    def generate(self, ids, max_new_tokens, temperature=1.0, top_k=None):
        option = {"temperature": temperature} if top_k is None else {"top_k": top_k}
        return self.written(ids, max_new_tokens, **option)


class FirstText(Drawing):
    def generate(self, ids, max_new_tokens):
        return self.written(ids[:1], max_new_tokens)


class OneShort(Drawing):
    def generate(self, ids, max_new_tokens):
        return self.written(ids, max_new_tokens - 1)


class OneShortCooled(Drawing):
    def generate(self, ids, max_new_tokens, temperature=1.0):
        return self.written(ids, max_new_tokens - 1, temperature=temperature)


class FirstDropped(Drawing):
    def generate(self, ids, max_new_tokens, temperature=1.0):
        return self.written(ids, max_new_tokens, temperature=temperature)[:, 1:]


@pytest.mark.parametrize(
    ("kind", "verdicts"),
    [  # of three questions: does it go on, does it write what it predicts, do the options hold?
        (GreedyByDefault, "right right right"),
        (SecondByDefault, "right wrong right"),
        (HotByDefault, "right right right"),
        (KeepsAShare, "right right right"),
        (Beams, "right right not asked"),
        (NoPairTwice, "right right right"),
        (NeverUnknown, "right doubtful right"),
        (OneText, "right doubtful not asked"),
        (KBest, "right right doubtful"),
        (BothFilters, "right right right"),
        (TheOtherOrder, "right right right"),
        (OneFilter, "right right wrong"),
        (OneFilterElse, "right right wrong"),
        (Stops, "doubtful right not asked"),
        (EitherOr, "right right wrong"),
        (FirstText, "right wrong not asked"),
        (OneShort, "right wrong not asked"),
        (OneShortCooled, "right wrong doubtful"),
        (FirstDropped, "wrong doubtful doubtful"),
    ],
)
def test_how_a_generate_is_judged(kind, verdicts):
    questions = (writing.generates, writing.writes_predictions, writing.options_hold)
    for seed in range(2):  # with one alone, what is wrong may be found by luck
        torch.manual_seed(seed)
        model = kind()
        assert " ".join(asked(question, model).verdict for question in questions) == verdicts


class Cropped(Drawing):
    """It reads what `crop` leaves of a text, given the block."""

    def __init__(self, crop, block, positions):
        super().__init__(29, block, positions=positions)
        self.crop = crop

    def written(self, ids, new, **options):
        for _ in range(new):
            logits = self(self.crop(ids, self.block_size))[0][:, -1]
            ids = torch.cat([ids, drawn(logits, **options)], dim=1)
        return ids

    def generate(self, ids, max_new_tokens):
        return self.written(ids, max_new_tokens)


class CroppedWithOptions(Cropped):
    def generate(self, ids, max_new_tokens, temperature=1.0, top_k=None):
        return self.written(ids, max_new_tokens, temperature=temperature, top_k=top_k)


@pytest.mark.parametrize("positions", ["learned", "alibi"])
@pytest.mark.parametrize("kind", [Cropped, CroppedWithOptions])
@pytest.mark.parametrize(
    ("crop", "block", "verdict"),
    [
        (lambda ids, T: ids[:, -32:], 64, "wrong"),
        (lambda ids, T: ids[:, -T // 2 :], 64, "wrong"),
        (lambda ids, T: ids[:, -(T - 1) :], 24, "wrong"),
        (lambda ids, T: ids[:, -(T - 4) :], 24, "wrong"),
        (lambda ids, T: torch.cat([ids[:, 1 - T :], ids.new_zeros(len(ids), 1)], dim=1), 24, "wrong"),
        (lambda ids, T: ids if ids.shape[1] <= T else ids[:, -1:], 24, "doubtful"),
        (lambda ids, T: ids[:, (ids.shape[1] - 1) // T * T :], 24, "doubtful"),
        (lambda ids, T: ids[:, -T:], 24, "right"),
        (lambda ids, T: ids[:, -T:], 256, "right"),
        (lambda ids, T: ids[:, -T:], 2, "right"),
        (lambda ids, T: ids, 24, "right"),  # it raises past its block
    ],
)
def test_the_context_that_generate_reads_is_the_block(crop, block, verdict, kind, positions):
    torch.manual_seed(0)
    model = kind(crop, block, positions)
    finding = writing.writes_predictions.put_to(ModelVariants(WrappedModel(model, 29, block)), {})
    assert finding.verdict == verdict, finding


class Cached(GPT):
    def generate(self, ids, max_new_tokens, temperature=1.0):
        return generate(self, ids, max_new_tokens, temperature, cache=Cache())


@pytest.mark.parametrize(
    "model",
    [
        lambda: Cached(GPTConfig(29, 24, n_embd=32)),
        lambda: Cropped(lambda ids, T: ids, 48, "learned"),
        lambda: CroppedWithOptions(lambda ids, T: ids, 48, "learned"),
    ],
)
def test_a_generate_with_a_cache_or_that_reads_all_past_the_block_is_right(model):
    finding = asked(writing.writes_predictions, model())
    assert finding.verdict == "right", finding


class ForgetsItsCache(Drawing):
    """It writes as with a cache of which nothing is left when what it has written fills the block."""

    def written(self, ids, new, **options):
        full = max(ids.shape[1], self.block_size)
        for _ in range(new):
            text = ids[:, -self.block_size :] if ids.shape[1] <= full else ids[:, -1:]
            ids = torch.cat([ids, drawn(self(text)[0][:, -1], **options)], dim=1)
        return ids

    def generate(self, ids, max_new_tokens):
        return self.written(ids, max_new_tokens)


class ForgetsItsCacheWithOptions(ForgetsItsCache):
    def generate(self, ids, max_new_tokens, temperature=1.0, top_k=None):
        return self.written(ids, max_new_tokens, temperature=temperature, top_k=top_k)


@pytest.mark.parametrize("positions", ["learned", "alibi"])
@pytest.mark.parametrize("kind", [ForgetsItsCache, ForgetsItsCacheWithOptions])
def test_a_cache_that_breaks_where_it_is_full_is_doubtful(kind, positions):
    finding = asked(writing.writes_predictions, kind(29, 24, positions=positions))
    assert (finding.verdict, "Does generate keep a cache?" in finding.cause) == ("doubtful", True), finding


@pytest.mark.parametrize(("left_out", "verdict"), [(0, "right"), (4, "wrong")])
def test_the_context_is_found_where_embeddings_are_the_last_layer_too(left_out, verdict):
    torch.manual_seed(0)
    model = Cropped(lambda ids, T: ids[:, -(T - left_out) :], 24, "learned")
    model.head.weight = model.tokens.weight
    finding = asked(writing.writes_predictions, model)
    assert finding.verdict == verdict, finding


def test_fewer_long_texts_of_a_large_vocabulary_are_read_at_once(monkeypatch):
    read = list[int]()

    class Noting(Cropped):
        def forward(self, ids, targets=None):
            if ids.shape[1] == self.block_size:
                read.append(len(ids))
            return super().forward(ids)

    variants = ModelVariants(WrappedModel(Noting(lambda ids, T: ids[:, -T:], 64, "learned"), 29, 64))
    for at_once, texts in ((2**26, 51), (2**13, 4), (1, 2)):
        read.clear()
        monkeypatch.setattr(writing, "LOGITS", at_once)
        finding = writing.writes_predictions.put_to(variants, {})
        assert (finding.verdict, max(read)) == ("right", texts), finding


class Writer(Model):
    def write(self, ids, many):
        return super().generate(ids, many)


class TotalLength(Writer):
    def generate(self, ids, max_length):
        assert max_length > ids.shape[1]
        return self.write(ids, max_length - ids.shape[1])


class CalledLength(Writer):
    def generate(self, ids, length):
        return self.write(ids, length)


class OtherName(Drawing):
    def generate(self, ids, max_seq_len, top_k=None):
        return self.written(ids, max_seq_len - ids.shape[1], top_k=top_k)


class Filled(Writer):
    def generate(self, ids, n):
        written = torch.zeros(len(ids), n, dtype=torch.long)
        written[:, : ids.shape[1]] = ids  # an error, if n is smaller
        written[:] = self.write(ids, n - ids.shape[1])
        return written


class NewAloneOfLength(Writer):
    def generate(self, ids, length):
        return self.write(ids, length)[:, ids.shape[1] :]


@pytest.mark.parametrize("kind", [TotalLength, CalledLength, OtherName, Filled, NewAloneOfLength])
def test_a_length_may_count_the_ids_that_are_given(kind):
    for question in (writing.generates, writing.writes_predictions):
        finding = asked(question, kind())
        assert finding.verdict == "right", finding


class FirstForever(Writer):
    def generate(self, ids, max_length):
        return torch.cat([ids, ids[:, :1].repeat(1, max_length - ids.shape[1])], dim=1)


class Always12(Writer):
    def generate(self, ids, n):
        return self.write(ids, 12)


class NamedAlways12(Writer):
    def generate(self, ids, max_new_tokens):
        return self.write(ids, 12)


class OneLess(Writer):
    def generate(self, ids, n):
        return self.write(ids, n - 1)


class TotalOneLess(Writer):
    def generate(self, ids, n):
        return self.write(ids, n - 1 - ids.shape[1])


class NewTakenForTotal(Writer):
    def generate(self, ids, max_new_tokens):
        return self.write(ids, max_new_tokens - ids.shape[1])


@pytest.mark.parametrize("block", [5, 24, 40])
@pytest.mark.parametrize(
    ("kind", "verdict", "cause"),
    [
        (FirstForever, "wrong", ""),
        (Always12, "doubtful", "count the rounds"),
        (NamedAlways12, "doubtful", "count the rounds"),
        (OneLess, "wrong", "Count the rounds"),
        (TotalOneLess, "wrong", "Count the rounds"),
        (NewTakenForTotal, "wrong", "is taken for a length that counts"),
    ],
)
def test_a_generate_that_writes_too_few_or_others_is_found_whatever_it_counts(kind, verdict, cause, block):
    variants = ModelVariants(WrappedModel(kind(29, block), 29, block))
    finding = writing.writes_predictions.put_to(variants, {})
    assert finding.verdict == verdict, finding
    assert block < 6 or cause in finding.cause


def test_a_generate_may_return_the_new_ids_alone():
    class NewAlone(Model):
        def generate(self, ids, max_new_tokens):
            return super().generate(ids, max_new_tokens)[:, ids.shape[1] :]

    assert asked(writing.generates, NewAlone()).verdict == "right"


@pytest.mark.parametrize("name", ["GPT2", "OPT"])
def test_that_transformers_reads_all_ids_to_write_more_is_no_doubt(name):
    finding = asked(writing.generates, theirs(name))
    assert (finding.verdict, finding.measured[:32]) == ("not asked", "The generate of transformers rea")


def test_a_generate_that_reads_more_than_its_block_is_doubted():
    class Uncropped(Model):
        def generate(self, ids, max_new_tokens):
            for _ in range(max_new_tokens):
                ids = torch.cat([ids, self(ids)[0][:, -1:].argmax(dim=-1)], dim=1)
            return ids

    assert asked(writing.generates, Uncropped()).verdict in ("doubtful", "wrong")


@pytest.mark.parametrize(("V", "T", "width"), [(29, 24, 32), (200, 64, 64)])
def test_a_generate_that_reads_the_first_tokens_of_a_long_text_is_found(V, T, width):
    class First(Model):
        def generate(self, ids, max_new_tokens):
            for _ in range(max_new_tokens):
                logits, _ = self(ids[:, : self.block_size])
                ids = torch.cat([ids, logits[:, -1].softmax(dim=-1).multinomial(1)], dim=1)
            return ids

    torch.manual_seed(0)
    variants = ModelVariants(WrappedModel(First(V, T, width), V, T))
    finding = writing.generates.put_to(variants, {})
    assert finding.verdict == "wrong"
    assert "ids[:, :block_size]" in finding.cause


def test_a_generate_that_ends_soon_after_its_block_is_doubtful():
    class Ends(Model):
        def generate(self, ids, max_new_tokens):
            return super().generate(ids, min(max_new_tokens, max(1, self.block_size - ids.shape[1] + 1)))

    finding = asked(writing.generates, Ends())
    assert finding.verdict == "doubtful", finding
    assert "returned 25 ids" in finding.measured


def test_a_generate_that_writes_into_its_prompt_is_found():
    class Overwriting(Model):
        def generate(self, ids, max_new_tokens):
            written = super().generate(ids, max_new_tokens)
            ids[:, 0] = 0
            return written

    finding = asked(writing.generates, Overwriting())
    assert finding.verdict == "wrong"
    assert "overwrites the ids" in finding.cause


def test_a_generate_that_takes_a_place_among_the_largest_for_an_id_is_found():
    class Places(Model):
        def generate(self, ids, max_new_tokens, top_k=None):
            for _ in range(max_new_tokens):
                largest = self(ids[:, -self.block_size :])[0][:, -1].topk(top_k or 29).values
                ids = torch.cat([ids, largest.softmax(dim=-1).multinomial(1)], dim=1)
            return ids

    finding = asked(writing.writes_predictions, Places())
    assert finding.verdict == "wrong"
    assert "look the id up in the indices" in finding.cause


def test_a_generate_that_draws_once_and_repeats_it_is_found():
    class Once(Model):
        def generate(self, ids, max_new_tokens):
            drawn = super().generate(ids, 1)[:, -1:]
            return torch.cat([ids, drawn.expand(-1, max_new_tokens)], dim=1)

    finding = asked(writing.writes_predictions, Once())
    assert finding.verdict == "wrong"
    assert "repeats a token" in finding.cause


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("module", ["", "layers.0", "layers.1.to_v"])
def test_a_generate_that_leaves_another_mode_is_found_and_spoils_no_other_question(module, mode):
    class Turning(Model):
        def generate(self, ids, max_new_tokens):
            written = super().generate(ids, max_new_tokens)
            self.get_submodule(module).train(mode)
            return written

    variants = ModelVariants(WrappedModel(Turning(29, 24, dropout=0.3), 29, 24))
    assert writing.generates.put_to(variants, {}).verdict == "right"
    finding = writing.writes_predictions.put_to(variants, {})
    assert finding.verdict == ("wrong" if mode else "doubtful")
    assert "self.train(was)" in finding.cause
    assert not variants.with_noise.training


def test_ids_that_a_greedy_default_does_not_draw_are_drawn_with_a_temperature():
    variants = ModelVariants(WrappedModel(GreedyByDefault(300, 24), 300, 24))
    finding = writing.writes_predictions.put_to(variants, {})
    assert finding.verdict == "right", finding


def test_a_generate_that_seeds_itself_is_doubtful():
    class SeedsItself(Model):
        def generate(self, ids, max_new_tokens):
            generator = torch.Generator().manual_seed(0)
            for _ in range(max_new_tokens):
                chances = self(ids[:, -self.block_size :])[0][:, -1].softmax(dim=-1)
                ids = torch.cat([ids, chances.multinomial(1, generator=generator)], dim=1)
            return ids

    for V in (300, 600):
        torch.manual_seed(0)
        variants = ModelVariants(WrappedModel(SeedsItself(V, 24), V, 24))
        finding = writing.writes_predictions.put_to(variants, {})
        assert (finding.verdict, "seed" in finding.cause) == ("doubtful", True), finding


@pytest.mark.parametrize(("V", "absent"), [(29, 0), (29, 28), (65, 0), (100, 99)])
def test_an_id_that_is_never_drawn_is_doubted(V, absent):
    class Without(Model):
        absent = None

        def generate(self, ids, max_new_tokens):
            for _ in range(max_new_tokens):
                chances = self(ids[:, -24:])[0][:, -1].softmax(dim=-1)
                if self.absent is not None:
                    chances[:, self.absent] = 0
                ids = torch.cat([ids, chances.multinomial(1)], dim=1)
            return ids

    torch.manual_seed(0)
    model = Without(V, 24)
    for model.absent, verdict in ((None, "right"), (absent, "doubtful")):
        finding = writing.writes_predictions.put_to(ModelVariants(WrappedModel(model, V, 24)), {})
        assert finding.verdict == verdict, finding
    assert f"never draws id {absent}," in finding.measured


def test_that_a_low_temperature_draws_a_token_that_is_all_but_the_likeliest_is_right():
    class Twins(HotByDefault):
        def forward(self, ids, targets=None):
            logits, loss = super().forward(ids)
            return 0.2 * logits.repeat_interleave(2, dim=-1)[..., :29] + 3e-4 * (torch.arange(29) % 2), loss

    finding = asked(writing.writes_predictions, Twins())
    assert finding.verdict == "right", finding


@pytest.mark.parametrize("kind", [NeverUnknown, CroppedWithOptions])
def test_an_id_that_is_not_known_to_be_written_may_be_absent(kind):
    torch.manual_seed(0)
    model = kind() if kind is NeverUnknown else kind(lambda ids, T: ids[:, -8:], 24, "learned")
    noisy, greedy = ModelVariants(WrappedModel(model, 29, 24)).with_noise, {"temperature": 1e-4}
    verdicts = []
    for known in (torch.arange(1, 29), torch.arange(29)):
        finding = writing.reads_another_context(noisy, 64, greedy, known)
        verdicts.append((finding.verdict, finding.cause))
    crop = ("wrong", "crop")
    few = ("wrong", "greedy")
    assert verdicts == ([("doubtful", "absent"), few] if kind is NeverUnknown else [crop, crop])


class Greedy(Model):
    """It forgets the text when it writes, `at` the first token or at a later one."""

    def __init__(self, forgets=None):
        super().__init__(29, 24)
        self.forgets = forgets

    def generate(self, ids, max_new_tokens, do_sample=True):
        for step in range(max_new_tokens):
            read = ids[:, -1:] if step == self.forgets else ids
            ids = torch.cat([ids, self(read)[0][:, -1:].argmax(dim=-1)], dim=1)
        return ids


@pytest.mark.parametrize(
    ("forgets", "cause"),
    [(None, ""), (0, "Even the first token that it writes is wrong"), (3, "later ones aren't")],
)
def test_what_it_takes_for_likeliest_is_what_forward_says(forgets, cause):
    finding = asked(writing.writes_predictions, Greedy(forgets))
    assert finding.verdict == ("wrong" if cause else "right")
    assert cause in finding.cause


class Sampling(Model):
    """Its options are right, but for one."""

    def __init__(self, wrong="", V=29):
        super().__init__(V, 24)
        self.wrong = wrong

    def generate(self, ids, max_new_tokens, temperature=1.0, top_k=None, top_p=None):
        for _ in range(max_new_tokens):
            logits = self(ids[:, -24:])[0][:, -1]
            logits = logits * temperature if self.wrong == "temperature" else logits / temperature
            logits = logits / temperature if self.wrong == "temperature twice" else logits
            if top_k is not None:
                shift = {"top_k": 1, "top_k - 1": -1}.get(self.wrong, 0)
                least = logits.topk(min(top_k + shift, self.vocab_size)).values[:, -1:]
                logits = logits.masked_fill(logits < least, -torch.inf)
            if top_p is not None:
                ordered, places = logits.softmax(dim=-1).sort(descending=True)
                before = ordered.cumsum(dim=-1) - ordered
                beyond = (
                    before + ordered > top_p if self.wrong == "top_p, and not the next" else before >= top_p
                )
                beyond[:, 0] = False
                beyond = beyond if self.wrong == "top_p" else beyond.gather(1, places.argsort(dim=-1))
                logits = logits.masked_fill(beyond, -torch.inf)
            logits = 1e4 * logits if self.wrong == "temperature, for it is greedy" else logits
            ids = torch.cat([ids, logits.softmax(dim=-1).multinomial(1)], dim=1)
        return ids


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "temperature", "temperature twice", "temperature, for it is greedy"),
        *("top_k", "top_k - 1", "top_p", "top_p, and not the next"),
    ],
)
@pytest.mark.parametrize("V", [29, 300])
def test_each_option_of_sampling_is_tried(wrong, V):
    finding = writing.options_hold.put_to(ModelVariants(WrappedModel(Sampling(wrong, V), V, 24)), {})
    assert finding.verdict == ("wrong" if wrong else "right"), finding
    option = wrong.replace(",", " ").partition(" ")[0]
    assert not wrong or f"With {option}=" in finding.measured


@pytest.mark.parametrize("V", [2, 3, 29, 300])
@pytest.mark.parametrize("rounded", [torch.float32, torch.bfloat16])
def test_right_options_are_right_of_few_tokens_and_of_rounded_logits(V, rounded):
    model = Sampling(V=V)
    model.head.register_forward_hook(lambda *call: call[2].to(rounded))
    variants = ModelVariants(WrappedModel(model, V, 24))
    finding = writing.options_hold.put_to(variants, {})
    assert finding.verdict == "right", finding


def test_a_call_that_raises_is_quoted_with_its_options():
    class Raising(Model):
        def generate(self, ids, max_new_tokens, top_p=1.0):
            assert top_p == 1.0, "not yet"
            return super().generate(ids, max_new_tokens)

    finding = asked(writing.options_hold, Raising())
    assert (finding.verdict, "generate(ids, 1, top_p=0." in finding.measured) == ("doubtful", True), finding


def test_other_options_are_off_while_one_is_tried():
    class Cool(Sampling):
        def generate(self, ids, max_new_tokens, temperature=0.7, top_k=5):
            return super().generate(ids, max_new_tokens, temperature, top_k)

    assert asked(writing.options_hold, Cool()).verdict == "right"
