"""What a learner or a command line may pass, and cannot mean: each gets an error of ours, in a sentence.

Two tables. RIGHT has a right call of each public function, and the property below puts anything into each of
its arguments. SAID has wrong calls, and what is said of them.
"""

import ast
import math
import random
import re
import traceback
import warnings
from fractions import Fraction
from importlib import import_module
from inspect import isclass, unwrap
from numbers import Real
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
import torch
from beartype.door import is_bearable
from torch import nn

import attention_course
from attention_course.answering import new_questions, reinforce
from attention_course.attention import Cache
from attention_course.checks import describe
from attention_course.examine import examine
from attention_course.examine.planted import draw_bugs, plant
from attention_course.exercises import check
from attention_course.gpt import GPT, BigramLanguageModel, GPTConfig
from attention_course.heads import ablate
from attention_course.llama import Llama, LlamaConfig
from attention_course.names import shown
from attention_course.smollm import BytePairTokenizer, tokenizer_of
from attention_course.stories import write_stories
from attention_course.text import CharTokenizer, Corpus
from attention_course.training import Recipe

pytestmark = pytest.mark.usefixtures("shapes_unchecked")
PACKAGE = Path(attention_course.__file__).parent
MODULES = (
    *("averaging", "attention", "gpt", "llama", "flash", "heads", "stories", "text", "smollm", "speedrun"),
    *("answering", "training", "plots", "questions", "exercises", "explorers", "fills", "review"),
)
PUBLIC = {
    name: thing for each in MODULES for name, thing in vars(import_module(f"{PACKAGE.name}.{each}")).items()
}

STORIES = write_stories(seed=3, characters=4000)
DATA = Corpus.of(STORIES)
TOKENIZER = DATA.tokenizer
V = TOKENIZER.vocab_size
TWO = new_questions(random.Random(0), 2)
RECIPE = Recipe(steps=2, batch_size=2, precision="float32")
x, q, ids = torch.ones(5, 4), torch.ones(2, 5, 4), torch.zeros(1, 3, dtype=torch.long)
MASK, ANGLES = torch.ones(5, 5, dtype=torch.bool), torch.ones(5, 2)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch calls it a prototype
    NESTED = torch.nested.nested_tensor([x, x[:2]])
with torch.inference_mode():
    INFERENCE = torch.ones(2, 5, 4)
FLOAT8 = x.to(torch.float8_e4m3fn)
NAN, INF = math.nan, math.inf
SIZES = {"block_size": 8, "n_layer": 1, "n_head": 2, "n_embd": 4}
BANANA = CharTokenizer("banana")
PAIRS = tokenizer_of(["<end>", "a", "b", "ab"], [3, 1, 1, 1], ["a b"])
BYTE_PAIRS = BytePairTokenizer(PAIRS)


class Raises:
    """An integer by its type alone: whatever is asked of it raises an error of its own."""

    def __index__(self):
        raise KeyError("index")

    __repr__ = __float__ = __index__


def gpt(fill=None):
    torch.manual_seed(0)
    model = GPT(GPTConfig(V, **SIZES))
    if fill is not None:
        nn.init.constant_(model.lm_head.weight, fill)
    return model


def meta():
    with torch.device("meta"):
        return GPT(GPTConfig(V, **SIZES))


def llama():
    return Llama(LlamaConfig(V, **SIZES, n_kv_head=1, n_hidden=3))


def table(n):
    return BigramLanguageModel(n)


def filled(B=1, T=2):
    """A cache that a model has filled: that model alone can read on."""
    cache = Cache()
    gpt()(torch.zeros(B, T, dtype=torch.long), cache)
    return cache


def go_on(B, T):
    """Read B times T tokens after 2 times 4."""
    model, cache = gpt(), Cache()
    model(torch.zeros(2, 4, dtype=torch.long), cache)
    return model(torch.zeros(B, T, dtype=torch.long), cache)


def ablated(model, heads):
    """Enter the context, which is what looks at the arguments."""
    with ablate(model, heads):
        pass


ablated.__annotations__ = unwrap(ablate).__annotations__


def asked():
    """A model that knows the letters of questions, as small as it can be."""
    return GPT(GPTConfig(PUBLIC["TOKENIZER"].vocab_size, **SIZES | {"block_size": 128}))


def reinforced(**given):
    """Take the first step, which is what looks at the arguments."""
    return next(reinforce(**given))


reinforced.__annotations__ = unwrap(reinforce).__annotations__


def heads(n):
    return torch.ones(2, n, 5, 4)


def pair(x):
    return x, x


class Nano(nn.Module):
    """Gives logits and a loss, as nanoGPT's GPT does."""

    block_size = 8

    def forward(self, ids):
        return torch.zeros(*ids.shape, V), None


class Last(Nano):
    """Gives the logits of the last position, (B, V)."""

    def forward(self, ids):
        return torch.zeros(len(ids), V)


PLACES = {**PUBLIC, **globals(), "examine": examine, "plant": plant, "draw_bugs": draw_bugs}
RIGHT = """
causal_mean_loop(x=x)
causal_mean_matmul(x=x)
causal_mean_softmax(x=x)
causal_mask(T_q=3, T_k=None)
window_mask(T_q=3, window=2, T_k=None)
prefix_mask(T_q=3, prefix=2, T_k=None)
padding_mask(lengths=torch.tensor([1, 2]), T_k=3)
softmax(x=x, dim=-1)
attention_weights(q=q, k=q, mask=None, scale=None)
attention(q=q, k=q, v=q, mask=None, scale=None)
attend(q=q, k=q, v=q, mask=None, is_causal=False, enable_gqa=False)
Head(n_embd=4, head_size=2, d_v=None)
Head(4, 2)(x=x, mask=None)
CrossAttentionHead(n_embd=4, n_context=3, head_size=2, d_v=None)
CrossAttentionHead(4, 3, 2)(x=x, context=torch.ones(6, 3), mask=None)
head_size_of(n_embd=8, n_head=2)
MultiHeadAttention(n_embd=8, n_head=2, bias=False)
MultiHeadAttention(4, 2)(x=q, mask=None, is_causal=False, cache=None)
MultiHeadAttentionList(n_embd=8, n_head=2)
MultiHeadAttentionList(4, 2)(x=q, mask=None)
Cache().extend(layer=nn.Linear(1, 1), k=heads(3), v=heads(3))
fuse(heads=MultiHeadAttentionList(4, 2))
to_torch(fused=MultiHeadAttention(4, 2))
leak_probe(function=causal_mean_loop, x=x)
GPTConfig(vocab_size=7, block_size=8, n_layer=1, n_head=2, n_embd=4, dropout=0.0)
BigramLanguageModel(vocab_size=7)
table(V)(ids=ids)
MLP(n_embd=4, bias=False)
MLP(4)(x=x)
Block(config=GPTConfig(7))
sinusoidal_positions(block_size=8, n_embd=4)
GPT(config=GPTConfig(7))
gpt()(ids=ids, cache=None)
dtype_of(precision="auto", device=torch.device("cpu"))
autocast(precision="auto", device=torch.device("cpu"))
generate(model=gpt(), ids=ids, max_new_tokens=2, temperature=1.0, top_k=2, generator=None, cache=None)
group_size_of(n_head=6, n_kv_head=2)
RMSNorm(n_embd=4, eps=1e-5)
RMSNorm(4)(x=x)
Rotary(head_size=4, block_size=8, base=10_000.0)
Rotary(4, 8)(x=x, start=0)
rotate_pairs(x=x, cos=ANGLES, sin=ANGLES)
GroupedQueryAttention(n_embd=8, n_head=2, n_kv_head=1, rotary=None, bias=False)
GroupedQueryAttention(4, 2, 1)(x=q, mask=None, is_causal=False, cache=None)
SwiGLU(n_embd=4, n_hidden=3, bias=False)
SwiGLU(4, 3)(x=x)
LlamaConfig(vocab_size=7, n_head=2, n_embd=4, n_kv_head=1, n_hidden=3)
Llama(config=LlamaConfig(7))
llama()(ids=ids, cache=None)
flash_attention(q=q, k=q, v=q, mask=None, is_causal=False, block_size=2)
online_softmax(blocks=[(x, torch.ones(4, 3))])
read_weights(model=gpt(), ids=ids[0])
previous_token(ids=ids[0])
first_token(ids=ids[0])
induction_targets(ids=ids[0])
head_scores(weights=torch.ones(2, 3, 3), targets=previous_token(ids[0]))
ablated(model=gpt(), heads=[(0, 0)])
write_stories(seed=0, characters=9)
draw_story(rng=random.Random(0))
answers(text="Who got it? Poor Ann.")
read_story(line=STORIES.split("\\n")[0])
stories_entropy(text=STORIES)
answer_accuracy(model=gpt(), text=STORIES, tokenizer=TOKENIZER, precision="auto")
CharTokenizer(text="ab")
TOKENIZER.encode(text="Ann")
TOKENIZER.decode(ids=ids[0])
conditional_entropy(ids=DATA.val, n=2)
train_val_split(ids=DATA.val, val_share=0.1)
get_batch(ids=DATA.val, block_size=4, batch_size=2, generator=None)
Corpus.of(text=STORIES)
load_text(name_or_path="text.txt")
BytePairTokenizer(tokenizer=PAIRS)
BYTE_PAIRS.encode(text="ab")
BYTE_PAIRS.decode(ids=ids[0])
chat(question="why")
stored_tensors(model=llama())
reinforced(model=asked(), reward=right, steps=1, kl_weight=0.0, lr=1e-3, seed=0)
load_smollm(precision="no such precision")
newton_schulz(matrix=x, steps=2)
new_questions(rng=random.Random(0), n=2, held_out=False)
draw_sheet(rng=random.Random(0), answered=0.4)
draw_block(rng=random.Random(0), answered=0.4, T=9)
train_base(steps=1, seed=0, answered=0.4)
pad(questions=TWO)
with_answers(questions=TWO, answers=[" A hat.", " Poor Ann."])
write_answers(model=asked(), questions=TWO, temperature=1.0, generator=None)
accuracy(model=asked(), questions=TWO, temperature=0.0)
answer_loss(logits=torch.ones(2, 3, 4), targets=torch.zeros(2, 3).long(), is_answer=torch.ones(2, 3).bool())
fine_tune(model=asked(), steps=1, lr=1e-3, seed=0)
LoRA(W=x, rank=2)
add_lora(model=asked(), rank=2)
group_advantage(rewards=x)
policy_loss(log_p=x, advantage=x[:, :1], written=torch.ones(5, 4).bool())
kl_per_token(logits=torch.ones(2, 3, 4), reference=torch.ones(2, 3, 4))
Muon(groups=[nn.Parameter(x)], lr=0.1, momentum=0.9, betas=(0.9, 0.95), weight_decay=0.0)
TokenShift(n_embd=4)
TokenShift(4)(x=q, cache=None)
fast_gpt(config=GPTConfig(7), tricks=[])
speedrun(data=DATA, tricks=[], text="stories", steps=9, learning_rate=0.1)
Recipe(steps=1, batch_size=1, learning_rate=0.1, final_learning_rate=0.0, warmup=0, weight_decay=0.0)
Recipe(beta2=0.9, clip=1.0, evaluate_every=1, evaluate_blocks=1, precision="auto", seed=0)
parameter_groups(model=gpt(), weight_decay=0.1)
Trainer(model=gpt(), data=DATA, recipe=RECIPE, optimizer=None, schedule=None)
Trainer(gpt(), DATA, RECIPE).load(path="no such file")
Trainer(gpt(), DATA, RECIPE).save(path="saved.pt")
train(model=gpt(), data=DATA, recipe=RECIPE, name="training")
run(trainer=Trainer(gpt(), DATA, RECIPE), callback=None, name="training")
evaluate(model=gpt(), ids=DATA.val, precision="auto", blocks=None)
load_model(path="no such file")
read_checkpoint(path="no such file")
Heatmap(title="t", values=x, row_label="r", column_label="c")
Bars(title="t", heights=torch.ones(3), labels="abc", label="l", limits=(0, 1))
Histogram(title="t", density=torch.ones(3), limits=(0, 1), x_label="x")
Scatter(title="t", points=torch.ones(3, 2), labels="abc", limits=(0, 1))
Lines(title="t", x=torch.ones(3), curves={"a": torch.ones(3)}, x_label="x", y_label="y")
Text(title="t", text="abc")
explore(name="sampling", model=gpt(), tokenizer=TOKENIZER, prompt="Ann")
explore(name="attention_over_text", model=gpt(), tokenizer=TOKENIZER, text="Ann")
LiveTraining(tokenizer=TOKENIZER, floors={}, prompt="Ann")
ask(name="no such question")
ask_again(name="no such question")
fill(name="causal_mean_loop", again=False)
warm_up(stem="no such rung")
check(name="causal_mean_loop", function=causal_mean_loop)
exercise_again(name="causal_mean_loop")
hint(name="causal_mean_loop")
solution(name="causal_mean_loop")
"""

# What anything may be put into


NUMBERS = (True, 0, 1, -1, -7, 3, 2**63, 2.5, -0.5, NAN, INF, 1j, np.float64(1.5), np.int64(3))
NUMBERS += (np.uint8(3), Fraction(5, 2), 10**400, -(10**5000))
OF_ALL_TYPES = (None, "", "x", "auto", b"x", [], [1], [[1.0]], (), (1, 2), {}, {"a": 1}, {1, 2}, range(3))
TOO_LONG = "x" * 256  # for the name of a file
POOL = (
    *(*NUMBERS, *OF_ALL_TYPES, TOO_LONG, len, object(), dict, np.ones((5, 4)), nn.Linear(4, 4), Cache()),
    *(torch.tensor(1), torch.tensor(1.5), torch.tensor(True), torch.ones(0), torch.ones(5), MASK),
    *(x, x.double(), x[:0], x * INF, x * 1j, x.long(), x.to_sparse(), ids, ids[0].to(torch.int8)),
    *(q, q[..., :1], q[None], q.half(), q.bfloat16(), q[:, :0], q * NAN, torch.ones(2, 3, 4)),
    *(q.to("meta"), ids.to("meta"), MASK.to("meta"), "Ж", DATA, TOKENIZER),
    *(
        torch.float16,
        torch.device("cpu"),
        torch.Generator(),
        NESTED,
        FLOAT8,
        INFERENCE,
        slice(1, 2),
        Raises(),
        [Raises()],
        nn.UninitializedParameter(),  # the weight of a LazyLinear
        np.array("x"),
    ),
)
UNCHECKED = {
    ("train", "callback"),  # the errors of a function are its own
    ("reinforced", "reward"),
    ("RMSNorm", "x"),  # on another device than the module
    ("TokenShift", "x"),
}
JUDGED = (len,)  # of what can be called: `check` starts a process for each
WORDS = {  # others for an argument
    **{
        "data": "text",
        "ids": "text",
        "path": "checkpoint",
        "name_or_path": "path",
        "tricks": "trick",
        "stem": "rung",
    },
    **{"heads": "head", "x": "q", "name": "explorer question exercise fill", "prompt": "CharTokenizer"},
}
POSITIVE = (
    *("vocab_size", "block_size", "n_layer", "n_head", "n_embd", "head_size", "d_v", "n_context", "window"),
    *("n_kv_head", "n_hidden", "base", "top_k", "characters", "n", "batch_size", "steps", "evaluate_every"),
    *("evaluate_blocks", "blocks", "learning_rate", "clip"),
)
ZERO_WILL_DO = ("sinusoidal_positions", "newton_schulz")


def described(value):
    if isinstance(value, torch.Tensor):
        return f"{describe(value)} on {value.device}"
    return getattr(value, "__name__", shown(value)[:40])


def fits(value, hint, argument, called):
    """Say whether a value is what the annotation asks for; an integer or a number may be of any library.

    No number may be NaN, or -1 if it is no dimension and no scale, and no size may be 0.
    """
    number = isinstance(value, Real)
    if number and (value != value or (value == -1 and argument not in ("dim", "scale"))):
        return False
    if number and value == 0 and argument in POSITIVE and called not in ZERO_WILL_DO:
        return False
    single = isinstance(value, np.generic | torch.Tensor) and value.ndim == 0
    same = [value, *([value.item()] if single else [])]
    same += [float(each) for each in same if isinstance(each, Real) and abs(each) < 2**1023]
    return any(is_bearable(each, hint) for each in same)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """Work in a folder with one good text, and files that are no texts and no checkpoints."""
    path = tmp_path_factory.mktemp("bad")
    (path / "folder").mkdir()
    (path / "text.txt").write_text(STORIES)
    (path / "binary.txt").write_bytes(b"PK\x00\x01 no text")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield


def is_sentence(message, names):
    """Say whether a message names one of these, and has the words and the end of a sentence."""
    named = re.search(rf"(?<!\w)({'|'.join(re.escape(name) for name in names if name)})(?!\w)", message, re.I)
    return bool(named) and len(message.split()) >= 6 and message.rstrip().endswith((".", "?", ")"))


def complaint(error, names):
    """Return what is wrong with an error that a learner gets: nothing, if the package raised a sentence."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    if not (last.filename.startswith(str(PACKAGE)) and last.line.startswith("raise ")):
        return f"{error!r} from {last.filename}:{last.lineno}"
    if not isinstance(error, TypeError | ValueError | OSError) or not is_sentence(str(error), names):
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.slow
@pytest.mark.parametrize("row", RIGHT.split("\n")[1:-1])
def test_whatever_is_passed_gets_an_error_of_ours_or_a_result(row):
    """And what is not of the type that an argument is annotated with gets no result."""
    call = ast.parse(row, mode="eval").body
    function = eval(ast.unparse(call.func), PLACES)
    right = {each.arg: eval(ast.unparse(each.value), PLACES) for each in call.keywords}
    of_module = isinstance(function, nn.Module)
    inner = function.forward if of_module else function.__init__ if isclass(function) else function
    hints, called = get_type_hints(inner), type(function).__mro__ if of_module else [function]
    ours = [each for each in called if each.__module__.startswith((PACKAGE.name, __name__))]
    names = [part for each in ours for part in each.__qualname__.split(".")]
    if "no such" not in row:
        function(**right)
    wrong = {}
    for argument in right:
        for value in POOL:
            unchecked = function is check and callable(value) and value not in JUDGED
            if unchecked or (names[0], argument) in UNCHECKED:
                continue
            told = None
            try:
                function(**{**right, argument: value})
            except Exception as error:
                others = WORDS.get(argument, "").split()
                told = complaint(error, [*names, argument, type(value).__name__, *others])
            else:
                if not fits(value, hints.get(argument, object), argument, names[0]):
                    told = "was taken"
            if told:
                wrong[argument, described(value)] = told
    assert not wrong


# What the messages say beyond that


# Each row: a call, and what its message says, in this order; … leaves some of it out.
SAID = r"""
causal_mean_loop([[1.0]]) | causal_mean_loop expects a float tensor of shape (T, C) or (B, T, C) … list
causal_mean_matmul(x.long()) | causal_mean_matmul expects … dtype is torch.int64. … x.float()
causal_mean_softmax(x[0]) | causal_mean_softmax expects … shape is (4,). … x[:, None]
causal_mean_loop(q[None]) | shape is (1, 2, 5, 4). … x.flatten(0, -3)
causal_mean_loop(x[:0]) | T = 0. Pass at least one token
causal_mean_loop(NESTED) | it is nested. … x.to_padded_tensor(0.0)
causal_mean_loop(FLOAT8) | causal_mean_loop expects … dtype is torch.float8_e4m3fn. … x.float()
softmax(FLOAT8, 0) | softmax: x is torch.float8_e4m3fn, (5, 4), expected a float tensor. … .float()
softmax(x, slice(1, 2)) | softmax: dim = slice(1, 2, None) of the shape (5, 4), expected a dimension
softmax(x, Raises()) | softmax: dim = <Raises> of the shape (5, 4), expected a dimension
causal_mask(Raises()) | causal_mask: T_q = <Raises>, expected an integer of at least
Recipe(precision=[Raises()]) | There is no precision called <list>. There are: auto,
causal_mean_loop(x.to_sparse()) | layout is torch.sparse_coo. … x.to_dense()
RMSNorm(2**63) | RMSNorm: n_embd = 9223372036854775808, expected … at least 1, below 2**63.
window_mask(3, 0) | window_mask: window = 0, expected an integer of at least 1.
causal_mask(3, device="nowhere") | causal_mask: device = 'nowhere', expected one that PyTorch can use here
causal_mask(3, device="hpu") | causal_mask: device = 'hpu', expected one that PyTorch can use here
padding_mask(torch.tensor([1, 4]), 3) | padding_mask: lengths holds 4, expected integers from 0 to 3.
padding_mask(torch.tensor([-1, 4]), 3) | padding_mask: lengths holds -1
padding_mask([1, 2], 3) | lengths is list, expected an integer tensor of shape (B,). … real.sum(dim=-1)
padding_mask(ids, 3) | lengths is torch.int64, (1, 3), expected
softmax(ids, -1) | softmax: x is torch.int64, (1, 3), expected a float tensor. … .float()
softmax(x, 2) | softmax: dim = 2 of the shape (5, 4), expected a dimension that has entries.
softmax(x[:0], 0) | softmax: dim = 0 of the shape (0, 4)
softmax(torch.zeros(65505).half(), 0) | 65505 entries … torch.float16 overflows. … x.float()
attention_weights(q, q[..., :3]) | attention_weights: q has head_size 4 and k has head_size 3. A dot product
attention_weights(q[..., :0], q[..., :0]) | q and k have head_size 0, expected at least one channel.
attention_weights(q, q, scale=NAN) | attention_weights: scale = nan, expected a finite number below 2**63
attention(q, q, q[:, :3]) | attention: k holds 5 tokens and v holds 3. Each key needs its value.
attention([[1.0]], x, x) | q is list, expected a float tensor. … torch.as_tensor(q).float()
attention(x[0], x, x) | q has shape (4,), expected (..., T, channels): q[None].
attention(x, x.double(), x) | q is torch.float32 and k is torch.float64. Convert one: k.to(q).
attention(x, x, x.half()) | attention: q is torch.float32 and v is torch.float16. Convert one: v.to(q).
attention(x, q, x) | q has shape (5, 4) and k has shape (2, 5, 4). The leading dimensions of k must broadcast
attention(q, q, torch.ones(3, 5, 4)) | attention: q has shape (2, 5, 4) and v has shape (3, 5, 4). The leading
attention(x, x, x.to("meta")) | attention: expected q and v on one device, but they are on cpu and meta.
attention(x, x, x, MASK.to("meta")) | expected q and mask on one device
attention(q, q, q, MASK[:4]) | the mask has shape (4, 5) and the scores have shape (2, 5, 5). … make it (5, 5)
attend(q, q, q, torch.ones(3, 5, 5) > 0) | attend: the mask has shape (3, 5, 5)
attend(q, q, q, torch.ones(1, 2, 5, 5) > 0) | attend: the mask has shape (1, 2, 5, 5)
attend(q, q, q, MASK.float()) | the mask has dtype torch.float32, expected torch.bool … mask.bool() … mask ==
attend(q, q, q, [[True]]) | attend: the mask is list, expected a tensor of torch.bool … dtype=torch.bool
attend(heads(6), heads(2), heads(2)) | The leading dimensions of k must broadcast to those of q
attend(heads(6), heads(4), heads(2), enable_gqa=True) | k has shape (2, 4, 5, 4), expected
attend(heads(6), heads(2), heads(0), enable_gqa=True) | v has shape (2, 0, 5, 4) … the heads of q a multiple
attend(heads(6), heads(2), torch.ones(3, 2, 5, 4), enable_gqa=True) | leading dimensions of v must
online_softmax([]) | online_softmax: there is no block, expected at least one pair (scores, values).
online_softmax([(x, x.long())]) | a block has values of torch.int64, (5, 4), expected a float tensor.
online_softmax([x]) | online_softmax: a block is torch.float32, (5, 4), expected a pair (scores, values).
online_softmax(torch.ones(3, 2, 5, 5)) | online_softmax: blocks is torch.float32, (3, 2, 5, 5), expected pairs
online_softmax([(x, x)]) | a block has scores of shape (5, 4) and values of shape (5, 4), expected
online_softmax([(x[0], x)]) | a block has scores of shape (4,)
online_softmax([(x[:, :0], x[:0])]) | and at least one key
online_softmax([(x, x[:4].double())]) | scores of torch.float32 and values of torch.float64, expected one
Head(4, 4, 0) | Head: d_v = 0, expected an integer of at least 1.
Head(4, 2)(x[:, :3]) | Head: x is torch.float32, (5, 3), expected … (..., T, 4): the module was built for
MultiHeadAttention(4, 2)(q.double()) | x is torch.float64, expected it in the dtype of the module:
MultiHeadAttention(4, 2)(INFERENCE) | MultiHeadAttention: x was made in torch.inference_mode … x.clone()
MultiHeadAttentionList(4, 2)(x) | MultiHeadAttentionList: x has shape (5, 4) … (B, T, 4) … x[None].
MultiHeadAttention(4, 2)(q[:0]) | MultiHeadAttention: x has shape (0, 5, 4) … with at least one token
MultiHeadAttentionList(64, 5) | n_embd = 64 cannot be split into n_head = 5 heads … that divides 64.
fuse(MultiHeadAttention(4, 2)) | fuse: heads is MultiHeadAttention, expected MultiHeadAttentionList.
leak_probe(abs, x * NAN) | leak_probe: x has shape (5, 4) and holds inf, NaN
leak_probe(abs, torch.full((2, 2), 4095.0).half()) | too large for torch.float16
leak_probe(lambda x: x * NAN, x) | leak_probe: the function returns NaN or inf, … expected finite outputs.
leak_probe(lambda x: x * INF, x) | leak_probe: the function returns NaN or inf
leak_probe(pair, x) | leak_probe: what the function returns is tuple, expected Tensor.
leak_probe(lambda x: x[:0], x) | the function returns the shape (0, 4)
leak_probe(nn.Dropout(0.5), torch.ones(9, 9)) | two different outputs for the same tokens, … model.eval()
gpt()(ids, filled()) | Cache: it holds nothing of this model, expected 1 sequences. Start with a new Cache().
go_on(B=1, T=1) | Cache: it holds 2 sequences, expected 1 sequences. Start with a new Cache().
go_on(B=2, T=5) | GPT: 9 tokens, but block_size is 8. Keep ids[:, -8:] and start with a new Cache().
gpt()(torch.zeros(1, 9).long()) | GPT: 9 tokens, but block_size is 8. Keep ids[:, -8:].
gpt()(ids[0]) | GPT: ids is torch.int64, (3,), expected an integer tensor of shape (B, T), int64. … ids[None]
gpt()(ids.short()) | GPT: ids is torch.int16
gpt()(ids[:, :0]) | GPT: ids has shape (1, 0). Give at least one token.
table(5)(ids + 5) | BigramLanguageModel: ids holds 5, expected integers from 0 to 4.
GPTConfig(7, dropout=1.0) | GPTConfig: dropout = 1.0, expected 0 <= dropout < 1.
dtype_of("int8", torch.device("cpu")) | There is no precision called 'int8'. There are: float32, bfloat16,
generate(gpt(), "text", 3) | generate: ids is str, expected … tokenizer.encode(text)[None]
generate(gpt(), ids[:, :0], 3) | generate: ids has shape (1, 0). Give at least one token
generate(gpt(), ids.to("meta"), 3) | generate: ids is on meta and the model on cpu. Move it: ids.to(...).
generate(gpt(), ids, 3, temperature=INF) | generate: temperature = inf, expected … of at least 0, below
generate(gpt(), ids, 3, temperature=1e-300) | generate: temperature = 1e-300 is so small … pass 0.
generate(gpt(), ids, 3, generator=0) | generate: generator is int, expected … manual_seed(seed)
generate(gpt(), ids, 3, cache=filled(T=3)) | generate: the cache holds 3 tokens, and ids has 3, expected
generate(table(V), ids, 3, cache=Cache()) | generate: BigramLanguageModel takes no cache. Leave it out.
generate(nn.Linear(2, 2), ids, 3) | Linear has block_size = None, expected … block_size = 128
group_size_of(9, 2) | n_head = 9 heads cannot share n_kv_head = 2 heads … Choose an n_kv_head that divides 9.
Llama(LlamaConfig(7, n_embd=18, n_head=6)) | Rotary: head_size = 3, expected an even number
Rotary(4, 9, 0) | Rotary: base = 0, expected an int or a float of at least 1, below 2**63.
Rotary(4, 9)(x, 8) | Rotary: start = 8 and 5 tokens end at position 12, expected at most 8
rotate_pairs(x, ANGLES, ANGLES[:1]) | rotate_pairs: for x of shape (5, 4), sin has shape (1, 2), expected
GroupedQueryAttention(4, 2, 1, Rotary(4, 9))(q) | Rotary: x is … expected a float tensor of shape (..., T, 4)
newton_schulz(torch.ones(3)) | newton_schulz: matrix is torch.float32, (3,), expected a float matrix.
Muon([nn.Parameter(x)], lr=-1) | Muon: lr = -1, expected an int or a float of at least 0
Muon([nn.Parameter(x)], weight_decay=NAN) | Muon: weight_decay = nan
Muon([nn.Parameter(x)], momentum=1.5) | Muon: momentum = 1.5
Muon([nn.Parameter(x)], betas=(0.9, -1)) | betas = (0.9, -1), expected 0 <= number < 1.
Muon([{"params": [nn.Parameter(torch.ones(3))], "orthogonal": True}]) | has shape (3,), expected a matrix.
speedrun(DATA, ["mun"]) | There is no trick called 'mun'. Did you mean 'muon'?
speedrun(DATA, "muon") | speedrun: tricks is str, expected names, for example ['muon'].
speedrun(DATA, [], text="poems") | There is no text called 'poems'.
ablate(gpt(), [(1, 0)]).__enter__() | there is no head (1, 0) … (layer, head) … from 0 to 0 and … 0 to 1.
ablate(gpt(), (pair for pair in [(0, 0)])).__enter__() | ablate: heads is generator, expected Sequence or Set.
conditional_entropy(DATA.val, np.uint8(3)) | conditional_entropy: n = np.uint8(3), expected an int … int(n)
ablate(gpt(), [(0.0, 0)]).__enter__() | there is no head (0.0, 0)
conditional_entropy(ids[0], 4) | conditional_entropy: n = 4 with 3 ids, expected at least n ids.
BANANA.encode("bananжa") | 'ж' (U+0436) at position 5 is not one of the 3 … text.replace('ж', '')
CharTokenizer("ab\ud83d") | '\ud83d' at position 2 of the text is half of a surrogate pair, not a character.
BANANA.decode(torch.tensor([0, 1, 3])) | id 3 at position 2 is not in the vocabulary: ids go from 0 to 2.
BANANA.decode(torch.tensor([0, -1])) | id -1 at position 1
train_val_split(torch.arange(10), 0.95) | val_share = 0.95 of 10 ids, expected a share between 0 and 1
train_val_split(torch.arange(1)) | val_share = 0.1 of 1 ids
get_batch(torch.arange(8), 8, 2) | 8 ids are too few for block_size = 8: … at least 9 are needed.
get_batch(ids, 4, 2) | get_batch: ids is torch.int64, (1, 3), expected an integer tensor of shape (T,). … one
generate(Nano(), ids, 2) | generate: the model returns tuple, expected logits (B, T, V).
generate(Last(), ids, 2) | generate: the model returns torch.float32, (1, 33), expected logits (B, T, V).
Trainer(gpt(), Corpus(DATA.train[:7], DATA.val, TOKENIZER), RECIPE) | The training text has 7 tokens, too few
Trainer(gpt(), Corpus(DATA.train, DATA.val[:8], TOKENIZER), RECIPE) | The validation text has 8 tokens
Trainer(gpt().requires_grad_(False), DATA, RECIPE) | no parameter of the model requires a gradient
Trainer(gpt(), DATA, RECIPE, torch.optim.SGD([nn.Parameter(x)])) | optimizer holds … model.parameters()
Recipe(steps=2**31) | Recipe: steps = 2147483648, expected an integer of at least 1, below 2**31.
Recipe(seed=2**63) | Recipe: seed = 9223372036854775808, expected an integer, 0 <= seed < 2**63.
Recipe(beta2=1.0) | Recipe: beta2 = 1.0, expected a number, 0 <= beta2 < 1.
Recipe(weight_decay=INF) | Recipe: weight_decay = inf, expected a number, 0 <= weight_decay < inf.
Recipe(clip=10**400) | Recipe: clip = 1000 … expected a finite number above 0.
Recipe(clip=0.0) | Recipe: clip = 0.0, expected a finite number above 0.
Recipe(precision="float23") | There is no precision called 'float23'. Did you mean 'float32'?
evaluate(gpt(), DATA.val, blocks=0) | evaluate: blocks = 0, expected an integer of at least 1
train(nn.Linear(2, 2), DATA, RECIPE) | Linear has block_size = None
load_model("a" * 256) | no checkpoint file
load_model("folder") | no checkpoint file folder. Trainer.save writes one.
read_checkpoint("no such file.pt") | no checkpoint file no such file.pt
Trainer(gpt(), DATA, RECIPE).load("binary.txt") | binary.txt is not a checkpoint of this course
Trainer(gpt(), DATA, RECIPE).save("no/such.pt") | The checkpoint … could not be written
Trainer(gpt(), DATA, RECIPE).save("\ud800\0.pt") | The checkpoint … could not be written: No file can have
CharTokenizer("") | CharTokenizer: the text is empty.
BYTE_PAIRS.encode("a\ud800") | encode: '\ud800' at position 1
BYTE_PAIRS.decode(torch.tensor([4])) | 4
head_scores(torch.ones(2, 4, 4), previous_token(ids[0])) | head_scores: weights of torch.float32, (2, 4, 4)
picture([Text("t", "abc")], alt="") | picture
explore("sampling", colour="red") | colour
explore("sampling", model=gpt(NAN), tokenizer=TOKENIZER) | GPT gives logits that are NaN
explore("attention_over_text", model=meta(), tokenizer=TOKENIZER) | GPT returns a tensor without numbers
explore("attention_over_text", model=table(V), tokenizer=TOKENIZER, text="A") | weights
explore("sampling", model=table(2), tokenizer=TOKENIZER, prompt="Ann") | tokenizer
explore("sampling", model=gpt(), tokenizer=TOKENIZER, prompt="") | prompt
LiveTraining(TOKENIZER, floors={"entropy": 0}) | floors
LiveTraining(TOKENIZER, prompt="") | prompt
load_text("tiny-shakespear") | no file … Did you mean 'tiny-shakespeare'? There are: stories
load_text("books/war.txt") | no file … war.txt. … There are: stories
load_text("folder") | folder is not a file. Name a text file, perhaps one in that folder.
draw_story(0) | draw_story: rng is int, expected random.Random(seed).
read_story("hello") | read_story: 'hello' is not a story. Expected a fact about two people, … as in 'Kind Ann
plant("no mask", layers=1.5) | plant: layers = 1.5, expected an integer of at least 1
plant("no mask, attention.py", block_size=0) | plant: block_size = 0, expected an integer of at least 1
draw_bugs(99) | draw_bugs: number = 99
draw_bugs("3") | draw_bugs: number = '3'
examine("model") | expected an nn.Module or a function
examine(abs, vocab_size=1, block_size=24) | vocab_size = 1, expected
examine(abs, vocab_size="65", block_size=24) | vocab_size = '65'
examine(abs, vocab_size=29, block_size=10**20) | block_size … below 2**63
examine(abs, vocab_size=10**9, block_size=24) | vocab_size = 1000000000, expected at most 1048576
examine(abs, vocab_size=29, block_size=24, train="no") | train is str, expected True or False
new_questions(random.Random(0), 2, held_out=None) | new_questions: held_out is NoneType, expected True or
draw_block(random.Random(0), T=INF) | draw_block: T = inf, expected an integer of at least 1.
fine_tune(asked(), steps=-1) | fine_tune: steps = -1, expected an integer of at least 1.
fine_tune(asked(), 1, answer="Ann") | fine_tune: answer is str, expected a function.
fine_tune(asked(), 1, loss_of=None) | fine_tune: loss_of is NoneType, expected a function.
reinforced(model=asked(), reward=1.0, steps=1) | reinforce: reward is float, expected a function.
reinforced(model=asked(), reward=right, steps=1, advantage_of=0) | reinforce: advantage_of is int, expected
reinforced(model=asked(), reward=right, steps=-1) | reinforce: steps = -1, expected an integer of at least 1.
accuracy(nn.Linear(2, 2), TWO) | Linear has block_size = None, expected
with_answers(TWO, ["Poor Ann."]) | with_answers: answers has 1 entries, expected one str for each of 2
with_answers(TWO, [" A hat.", "x" * 15]) | with_answers: answers holds … expected a str of at most 14 char
policy_loss(x, x, x > 0) | policy_loss: advantage is … (5, 4), expected a tensor of shape (5, 1), float.
answer_loss(q, ids, ids > 0) | answer_loss: targets is … (1, 3), expected a tensor of shape (2, 5), int64.
group_advantage(x[:, :1]) | group_advantage: rewards has shape (5, 1), expected (N, G) with at least two in
fill("causal_mean_loop", again=x) | fill: again is torch.float32, (5, 4), expected True or False.
answer_accuracy(gpt(), "Sam gave Kim a ring.", TOKENIZER) | no answer … of 20 characters has block_size = 8
"""


@pytest.mark.parametrize(("call", "said"), [line.split(" | ") for line in SAID.strip().splitlines()])
def test_a_message_says_what_was_wrong_what_was_expected_and_what_to_do(call, said):
    with pytest.raises((TypeError, ValueError, OSError)) as caught:
        eval(call, PLACES)
    assert str(caught.traceback[-1].path).startswith(str(PACKAGE))
    message, place = str(caught.value), 0
    for words in said.split(" … "):
        place = message.find(words, place)
        assert place >= 0, f"{words!r} is not in {message!r}, or not in this order"
