"""What a learner or a command line may pass, and cannot mean: each gets an error of ours, in a sentence."""

import math
import re
import traceback
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import attention_course
from attention_course.attention import (
    Cache,
    CrossAttentionHead,
    Head,
    MultiHeadAttention,
    MultiHeadAttentionList,
    attend,
    attention,
    attention_weights,
    causal_mask,
    fuse,
    head_size_of,
    leak_probe,
    padding_mask,
    prefix_mask,
    softmax,
    to_torch,
    window_mask,
)
from attention_course.averaging import causal_mean_loop, causal_mean_matmul, causal_mean_softmax
from attention_course.exercises import check, hint, solution
from attention_course.explorers import EXPLORERS, LiveTraining, explore
from attention_course.flash import flash_attention, online_softmax
from attention_course.gpt import (
    GPT,
    MLP,
    BigramLanguageModel,
    Block,
    GPTConfig,
    dtype_of,
    generate,
    sinusoidal_positions,
)
from attention_course.heads import TARGETS, ablate, head_scores, previous_token, read_weights
from attention_course.llama import (
    GroupedQueryAttention,
    Llama,
    LlamaConfig,
    RMSNorm,
    Rotary,
    SwiGLU,
    group_size_of,
    rotate_pairs,
)
from attention_course.plots import Bars, Heatmap, Histogram, Lines, Scatter, Text, picture
from attention_course.questions import ask
from attention_course.smollm import BytePairTokenizer, chat, load_smollm, tokenizer_of
from attention_course.speedrun import Muon, TokenShift, fast_gpt, newton_schulz, speedrun
from attention_course.stories import (
    answer_accuracy,
    answers,
    draw_story,
    read_story,
    stories_entropy,
    write_stories,
)
from attention_course.text import (
    CharTokenizer,
    Data,
    conditional_entropy,
    get_batch,
    load_text,
    train_val_split,
)
from attention_course.training import (
    Recipe,
    Trainer,
    evaluate,
    load_model,
    read_checkpoint,
    run,
    train,
)
from attention_course.training.__main__ import main

pytestmark = pytest.mark.usefixtures("shapes_unchecked")
PACKAGE = str(Path(attention_course.__file__).parent)

STORIES = write_stories(seed=3, characters=4000)
DATA = Data.of(STORIES)
TOKENIZER = DATA.tokenizer
V = TOKENIZER.vocab_size
RECIPE = Recipe(steps=2, batch_size=2, precision="float32")
x, q, ids = torch.ones(5, 4), torch.ones(2, 5, 4), torch.zeros(1, 3, dtype=torch.long)
NAN, INF = math.nan, math.inf


def gpt(fill=None):
    torch.manual_seed(0)
    model = GPT(GPTConfig(V, block_size=8, n_layer=1, n_head=2, n_embd=4))
    if fill is not None:
        nn.init.constant_(model.lm_head.weight, fill)
    return model


def meta():
    with torch.device("meta"):
        return GPT(GPTConfig(V, block_size=8, n_layer=1, n_head=2, n_embd=4))


def llama():
    torch.manual_seed(0)
    return Llama(LlamaConfig(V, block_size=8, n_layer=1, n_head=2, n_embd=4, n_kv_head=1, n_hidden=3))


def filled(B=1, T=2):
    """A cache that a model has filled: the one of this cache alone can read on."""
    cache = Cache()
    gpt()(torch.zeros(B, T, dtype=torch.long), cache)
    return cache


class Nano(nn.Module):
    """Gives logits and a loss, as nanoGPT's GPT does."""

    block_size = 8

    def forward(self, ids):
        return torch.zeros(*ids.shape, V), None


class Last(Nano):
    """Gives the logits of the last position, (B, V)."""

    def forward(self, ids):
        return torch.zeros(len(ids), V)


# other words for an argument
WORDS = {"data": "text", "ids": "text", "path": "checkpoint", "name_or_path": "path", "tricks": "trick"}
CALLS = {}  # name: callable, right arguments


def wrong(function, right=None, called=None, /, **arguments):
    """Put each of the wrong values of each argument in the place of the right one.

    A case is its id, what an error may name (the function, the argument, what came), and the call.
    """
    called = called or function.__name__
    CALLS.setdefault(called, (function, right or {}))
    return [
        (
            f"{called}-{argument}-{described(value)}",
            (
                *called.split("."),
                argument,
                WORDS.get(argument, argument),
                type(value).__name__,
                *([Path(value).name] if isinstance(value, str) else []),
            ),
            lambda argument=argument, value=value: function(**{**(right or {}), argument: value}),
        )
        for argument, values in arguments.items()
        for value in values
    ]


def described(value):
    if isinstance(value, torch.Tensor):
        numbers = "" if value.is_meta or value.is_sparse else f": {value.flatten()[:1].tolist()}"
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} on {value.device}{numbers}"
    if isinstance(value, nn.Module):
        first = next(value.parameters(), torch.zeros(1))
        odd = [] if not first.is_meta and first.isfinite().all() else [described(first)]
        return " of ".join([type(value).__name__, *odd])
    if isinstance(value, Cache):
        return f"Cache of {value.numel()} numbers"
    return getattr(value, "__name__", f"{value!r}"[:40])  # no address: the same in each process


NO_TOKENS = (None, [[1.0, 2.0]], "abc", x.long(), x > 0, x * 1j, x[0], q[None], x[:0])
NO_SIZE = (-1, 3.0, "3")
NO_IDS = (None, [0, 1], "ab", torch.ones(3), ids, torch.tensor(0))
NO_BATCH = (None, [[0, 1]], "ab", torch.ones(1, 3), ids[0], ids[:, :0], ids + V, ids - 1)
MASK = torch.ones(5, 5, dtype=torch.bool)
NO_MASK = ([[True] * 5] * 5, "causal", MASK.float(), MASK.long(), MASK[:4], MASK[0].long())
NO_MODEL = (None, [gpt()], "gpt", 3)
NO_PATH = (None, 3, ["a.txt"])

AVERAGING = [
    case
    for function in (causal_mean_loop, causal_mean_matmul, causal_mean_softmax)
    for case in wrong(function, x=NO_TOKENS)
]


def nothing(x):
    pass


def pair(x):
    return x, x


def total(x):
    return x.sum()


QKV = {"q": q, "k": q, "v": q}
HEADS = {"n_embd": 8, "n_head": 2}
ATTENTION = [
    *wrong(causal_mask, {"T_q": 3}, T_q=NO_SIZE, T_k=(-1, 2.5, "3")),
    *wrong(window_mask, {"T_q": 3, "window": 2}, T_q=(-1, 2.5), window=(-1, 0, 1.5, None), T_k=(-1,)),
    *wrong(prefix_mask, {"T_q": 3, "prefix": 2}, T_q=(-1, 2.5), prefix=(-1, 1.5, None), T_k=(-1,)),
    *wrong(padding_mask, {"lengths": torch.tensor([1, 2]), "T_k": 3}, lengths=([1, 2], x[0]), T_k=(-1, 2.5)),
    *wrong(softmax, {"x": x, "dim": -1}, x=(None, [1.0, 2.0])),
    *wrong(
        attention_weights,
        {"q": q, "k": q},
        q=(None, [[1.0]], x[0], q.long()),
        k=(None, q[..., :3], torch.ones(3, 5, 4), q.to("meta")),
        mask=(*NO_MASK, MASK.to("meta")),
        scale=("1", True, NAN, INF, MASK, 1j, 2**70, -(10**400)),
    ),
    *wrong(attention, QKV, q=(None,), k=(None, q[..., :3]), v=(None, q[:, :3]), mask=NO_MASK),
    *wrong(attend, QKV, q=(None,), k=(None, q[..., :3]), v=(None, q[:, :3]), mask=NO_MASK),
    *wrong(Head(4, 2), {"x": x}, "Head", x=([[1.0]], x[:, :3]), mask=NO_MASK[:4]),
    *wrong(MultiHeadAttention, HEADS, n_embd=(7, 0, 8.0), n_head=(0, 3, 2.0)),
    *wrong(MultiHeadAttentionList, HEADS, n_embd=(7, 0, 8.0), n_head=(0, 3, 2.0)),
    *wrong(MultiHeadAttentionList(4, 2), {"x": q}, "MultiHeadAttentionList.Head", mask=NO_MASK[:4]),
    *wrong(
        MultiHeadAttention(4, 2),
        {"x": q},
        "MultiHeadAttention",
        x=(None, [[[1.0]]], q[..., :3], x, q.long()),
        mask=NO_MASK,
    ),
    *wrong(
        leak_probe,
        {"function": causal_mean_loop, "x": x},
        function=(None, x, "mean", nothing, pair, total),
        x=(*NO_TOKENS[:5], x[0], x * NAN, x.to("meta")),
    ),
]


def table(n):
    return BigramLanguageModel(n)


SIZES = {"vocab_size": 7, "block_size": 8, "n_layer": 1, "n_head": 2, "n_embd": 4}
LONG = torch.zeros(1, 9, dtype=torch.long)
MODELS = [
    *wrong(GPTConfig, SIZES, vocab_size=(0, 7.0), block_size=(0, 2.5), n_layer=(-1, "1"), n_head=(0, 3, 2.0)),
    *wrong(GPTConfig, SIZES, n_embd=(5, 0, None), dropout=(1, 1.5, -0.1, NAN, "0.1", None)),
    *wrong(GPT, None, config=(64, SIZES)),
    *wrong(gpt(), None, "GPT", ids=(*NO_BATCH, LONG)),
    *wrong(table(V), None, "BigramLanguageModel", ids=NO_BATCH[:4] + NO_BATCH[-2:]),
    *wrong(
        generate,
        {"model": gpt(), "ids": ids, "max_new_tokens": 2},
        model=(*NO_MODEL, nn.Linear(2, 2), Nano(), Last(), gpt(NAN), gpt(INF)),
        ids=NO_BATCH,
        max_new_tokens=(-1, 2.5),
        temperature=(-1, NAN, "1", None, 2**70),
        top_k=(0, -1, 2.5),
        cache=({}, True, "cache", filled(T=3)),
    ),
    *wrong(gpt(), {"ids": ids}, "GPT.Cache", cache=({}, True, filled(B=2), filled(T=7))),
]

ANGLES = torch.ones(5, 2)
LLAMA = [
    *wrong(group_size_of, {"n_head": 6, "n_kv_head": 2}, n_head=(0, 3, 2.0), n_kv_head=(0, 4, "2")),
    *wrong(RMSNorm(4), None, "RMSNorm", x=(None, [[1.0]], x[:, :1], x.long())),
    *wrong(RMSNorm, {"n_embd": 4}, n_embd=(0, 4.0), eps=(-1, NAN, INF, "0", None, 10**400)),
    *wrong(
        Rotary,
        {"head_size": 4, "block_size": 8},
        head_size=(0, 3, 4.0),
        block_size=(0, 8.0),
        base=(0, -1, NAN, INF, "1e4", None),
    ),
    *wrong(Rotary(4, 8), None, "Rotary.rotate_pairs", x=(None, [[1.0]], torch.ones(5, 6), torch.ones(9, 4))),
    *wrong(Rotary(4, 8), {"x": x}, "Rotary.rotate_pairs.cos", start=(4, -1, 2.5, None)),
    *wrong(
        rotate_pairs,
        {"x": x, "cos": ANGLES, "sin": ANGLES},
        x=(None, "ab", x[0], x[:, :3]),
        cos=(None, 1.0, ANGLES[0], ANGLES[:1], ANGLES[:, :1]),
        sin=(None, torch.ones(5, 4)),
    ),
    *wrong(
        GroupedQueryAttention, {**HEADS, "n_kv_head": 1}, n_embd=(7, 8.0), n_head=(3, 2.0), n_kv_head=(3,)
    ),
    *wrong(
        GroupedQueryAttention(4, 2, 1),
        {"x": q},
        "GroupedQueryAttention",
        x=(None, [[[1.0]]], q[..., :3], x, q.long()),
        mask=NO_MASK,
    ),
    *wrong(SwiGLU, {"n_embd": 4, "n_hidden": 3}, n_embd=(0, 4.0), n_hidden=(0, None)),
    *wrong(SwiGLU(4, 3), None, "SwiGLU", x=(None, [[1.0]], x[:, :3])),
    *wrong(LlamaConfig, SIZES | {"n_kv_head": 1}, n_kv_head=(0, 3, None), n_hidden=(0, 2.5, "8")),
    *wrong(Llama, None, config=(None, GPTConfig(V), SIZES)),
    *wrong(llama(), None, "GPT.Llama", ids=(*NO_BATCH, LONG)),
]

BYTE_PAIRS = BytePairTokenizer(tokenizer_of(["<end>", "a", "b", "ab"], [3, 1, 1, 1], ["a b"]))
SMOLLM = [
    *wrong(BytePairTokenizer, None, tokenizer=(None, TOKENIZER, "gpt2")),
    *wrong(BYTE_PAIRS.encode, None, "BytePairTokenizer.encode", text=(None, b"ab", ["ab"], "a\ud800")),
    *wrong(
        BYTE_PAIRS.decode,
        None,
        "BytePairTokenizer.decode",
        ids=(*NO_IDS, torch.tensor([4]), torch.tensor([-1])),
    ),
    *wrong(chat, None, question=(None, b"why", ["why"])),
    *wrong(load_smollm, None, precision=("int8", None, 16)),
    *wrong(read_weights, {"model": gpt(), "ids": ids[0]}, model=(*NO_MODEL, table(V)), ids=NO_IDS),
    *(case for target in TARGETS.values() for case in wrong(target, None, ids=NO_IDS)),
    *wrong(
        head_scores,
        {"weights": torch.ones(2, 3, 3), "targets": previous_token(ids[0])},
        weights=(None, [[1.0]], torch.ones(2, 4, 4), torch.ones(3)),
        targets=(None, torch.ones(3, 3), torch.ones(2, 3, 3, dtype=torch.bool)),
    ),
    *wrong(
        lambda model, heads: ablate(model, heads).__enter__(),
        {"model": gpt(), "heads": [(0, 0)]},
        "ablate.head",
        model=(*NO_MODEL, table(V)),
        heads=(None, 3, (0, 1), [(1, 0)], [(0, 2)], [(0, -1)], [[0, 0]], ["ab"]),
    ),
]

LATIN = ("folder", "empty.txt", "binary.txt", "utf-16.txt", "latin.txt")  # what is no text in UTF-8
TEXTS = [
    *wrong(write_stories, {"characters": 9}, characters=(0, -1, "10"), seed=(-1, None)),
    *wrong(draw_story, None, rng=(None, 0)),
    *wrong(answers, None, text=(None, b"Who got it?")),
    *wrong(read_story, None, line=("", "Once upon a time", None, b"Kind Ann")),
    *wrong(stories_entropy, None, text=("", "Kind Ann", "once\n")),
    *wrong(
        answer_accuracy,
        {"model": gpt(), "text": STORIES, "tokenizer": TOKENIZER},
        model=NO_MODEL,
        text=("", "abc", "Ж"),
        tokenizer=(None, "abc"),
        precision=("int8", None, 16),
    ),
    *wrong(CharTokenizer, None, text=("", None, ["a"], "\ud800")),
    *wrong(TOKENIZER.encode, None, "CharTokenizer.encode", text=("Ж", None, ["K"], "\ud800")),
    *wrong(TOKENIZER.decode, None, "CharTokenizer.decode", ids=(*NO_IDS, torch.tensor([V]))),
    *wrong(conditional_entropy, {"ids": DATA.val, "n": 2}, ids=(*NO_IDS, ids[0, :0]), n=(0, 2.5, 10**6)),
    *wrong(train_val_split, {"ids": DATA.val}, ids=NO_IDS, val_share=(0, 1, -0.1, NAN, None)),
    *wrong(
        get_batch,
        {"ids": DATA.val, "block_size": 4, "batch_size": 2},
        ids=(*NO_IDS, torch.zeros(4, dtype=torch.long)),
        block_size=(0, 2.5, 10**6),
        batch_size=(0, 2.5),
    ),
    *wrong(Data.of, None, "Data.of.CharTokenizer", text=("", None, ["a"])),
    *wrong(
        load_text, None, name_or_path=(*NO_PATH, "", "no such file", "storys", STORIES, b"stories", *LATIN)
    ),
]

NUMBERS = (NAN, INF, -1, "1e-3", None)
TRAINING = [
    *wrong(
        Recipe,
        None,
        steps=(0, -1, 2.5, "9", None),
        batch_size=(0, 2.5, None),
        learning_rate=(0, *NUMBERS),
        final_learning_rate=NUMBERS,
        warmup=(-1, 2.5, None),
        weight_decay=NUMBERS,
        beta2=(1, *NUMBERS),
        clip=(0, *NUMBERS),
        evaluate_every=(0, 2.5),
        precision=("int8", 16, None, ["auto"]),
        seed=(-1, 2.5, 2**63, None, "0"),
    ),
    *(
        case
        for function in (Trainer, train)
        for case in wrong(
            function,
            {"model": gpt(), "data": DATA, "recipe": RECIPE},
            model=(*NO_MODEL, nn.Linear(2, 2)),
            data=(None, "stories", [DATA], DATA.train, Data(DATA.train[:4], DATA.val, TOKENIZER)),
            recipe=(None, "stories", {"steps": 2}, 100),
        )
    ),
    *wrong(
        Trainer,
        {"model": gpt(), "data": DATA, "recipe": RECIPE},
        optimizer=("adam", torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1)),
    ),
    *wrong(
        evaluate,
        {"model": gpt(), "ids": DATA.val},
        model=NO_MODEL,
        ids=(*NO_IDS, torch.zeros(4, dtype=torch.long)),
        precision=("int8", None, 16),
    ),
    *(
        case
        for function in (load_model, read_checkpoint, Trainer(gpt(), DATA, RECIPE).load)
        for case in wrong(function, None, path=("no such file.pt", "folder", "empty.txt", "binary.txt"))
    ),
    *wrong(Trainer(gpt(), DATA, RECIPE).save, None, path=("folder", "no/such/folder.pt")),
]

HEATMAP = {"title": "t", "values": x, "row_label": "r", "column_label": "c"}
BARS = {"title": "t", "heights": torch.ones(3), "labels": "abc", "label": "l", "limits": (0, 1)}
HISTOGRAM = {"title": "t", "density": torch.ones(3), "limits": (0, 1), "x_label": "x"}
SCATTER = {"title": "t", "points": torch.ones(3, 2), "labels": "abc", "limits": (0, 1)}
LINES = {"title": "t", "x": torch.ones(3), "curves": {"a": torch.ones(3)}, "x_label": "x", "y_label": "y"}
PLOTS = [  # with their words in tests/plots/test_checks.py; here for the pool
    *wrong(Heatmap, HEATMAP, tile=("ab",)),
    *wrong(Bars, BARS, limits=(("a", "b"),)),
    *wrong(Histogram, HISTOGRAM, limits=(None,)),
    *wrong(Scatter, SCATTER, lit=([True] * 3,)),
    *wrong(Lines, LINES, levels=({"a": NAN},)),
    *wrong(Text, {"title": "t", "text": "abc"}, framed=("a",)),
    ("picture-a list", ("picture", "panels"), lambda: picture([Heatmap(**HEATMAP)], alt="")),
]

NO_NAME = (None, 3, "", "attentoin", ["sampling"])
SHORT = {"model": gpt(), "tokenizer": TOKENIZER}
WIDGETS = [
    *wrong(explore, None, "explorer", name=NO_NAME),
    *((f"{name}-colour", ("colour",), lambda name=name: explore(name, colour="red")) for name in EXPLORERS),
    *(
        case
        for name, text in (("sampling", "prompt"), ("attention_over_text", "text"))
        for case in wrong(
            explore,
            {"name": name, text: "Ann", **SHORT},
            name,
            **{
                "model": (*NO_MODEL, nn.Linear(2, 2), Nano(), gpt(NAN), gpt(INF), meta(), table(2)),
                "tokenizer": (None, "abc", CharTokenizer("An")),
                text: (None, "", "Ж", 3, b"Ann"),
            },
        )
    ),
    (
        "attention_over_text-without weights",
        ("weights",),
        lambda: explore("attention_over_text", model=table(V), tokenizer=TOKENIZER, text="A"),
    ),
    *wrong(
        LiveTraining,
        {"tokenizer": TOKENIZER},
        tokenizer=(None, "abc", DATA),
        floors=([1.0], {"entropy": 0}, {"entropy": NAN}, {"entropy": None}),
        prompt=("", None, 3, "Ж"),
    ),
    *wrong(ask, None, "question", name=NO_NAME),
    *(
        case
        for function in (check, hint, solution)
        for case in wrong(
            function,
            {"function": len} if function is check else None,
            f"{function.__name__}.exercise",
            name=NO_NAME,
        )
    ),
    *wrong(check, {"name": "causal_mean_loop"}, function=(3, "mean", x)),
]

SPEEDRUN = [
    *wrong(CrossAttentionHead, {"n_embd": 4, "n_context": 3, "head_size": 2}, n_context=(0, 3.0, None)),
    *wrong(
        CrossAttentionHead(4, 3, 2),
        {"x": x, "context": torch.ones(6, 3)},
        "CrossAttentionHead",
        context=(None, x, [[1.0]]),
    ),
    *wrong(head_size_of, {"n_embd": 8, "n_head": 2}, n_embd=(7, "8")),
    *wrong(fuse, None, heads=(None, nn.Linear(4, 4))),
    *wrong(to_torch, None, fused=(None, nn.Linear(4, 4))),
    *wrong(MLP, {"n_embd": 4}, n_embd=(0, "4")),
    *wrong(Block, None, config=(None, SIZES, 64)),
    *wrong(sinusoidal_positions, {"block_size": 8, "n_embd": 4}, block_size=(-1, 2.5), n_embd=(-1, None)),
    *wrong(dtype_of, {"precision": "auto", "device": torch.device("cpu")}, device=(None, "cpu", 3)),
    *wrong(
        flash_attention,
        QKV,
        q=(None, [[1.0]]),
        k=(None, torch.ones(2, 5, 3), q.to_sparse()),
        mask=NO_MASK,
        is_causal=(None, 1, "yes"),
        block_size=(0, 2.5),
    ),
    *wrong(
        online_softmax,
        {"blocks": [(x, torch.ones(4, 3))]},
        blocks=(None, 3, [], [(x, torch.ones(4, 3).double())]),
    ),
    *wrong(newton_schulz, {"matrix": x}, matrix=(None, [[1.0]], ids, torch.ones(3)), steps=(-1, 2.5)),
    ("Muon-a vector", ("Muon",), lambda: Muon([{"params": [nn.Parameter(x[0])], "orthogonal": True}])),
    *wrong(TokenShift(4), {"x": q}, "TokenShift", x=(None, x[:, :1], q.long()), cache=("x", {}, True)),
    *wrong(
        fast_gpt,
        {"config": GPTConfig(**SIZES), "tricks": []},
        config=(None, SIZES),
        tricks=(None, "rotary", ["x"]),
    ),
    *wrong(
        speedrun,
        {"data": DATA, "tricks": []},
        data=(None, "stories"),
        tricks=(None, "muon", ["mu"]),
        text=(None, "poems"),
    ),
    *wrong(
        run,
        {"trainer": Trainer(gpt(), DATA, RECIPE)},
        trainer=(None, DATA),
        callback=(3, "x"),
        name=(3, None),
    ),
    *wrong(
        Cache().extend,
        {"layer": nn.Linear(1, 1), "k": torch.ones(1, 2, 3, 4), "v": torch.ones(1, 2, 3, 4)},
        "Cache.extend",
        k=(None, x, torch.ones(1, 2, 4, 4)),
        v=(None, "v", torch.ones(2, 2, 3, 4)),
    ),
]

CASES = SPEEDRUN + AVERAGING + ATTENTION + MODELS + LLAMA + SMOLLM + TEXTS + TRAINING + PLOTS + WIDGETS


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """Work in a folder with one good text, and files that are no texts and no checkpoints."""
    path = tmp_path_factory.mktemp("bad")
    (path / "folder").mkdir()
    (path / "text.txt").write_text(STORIES)
    (path / "empty.txt").touch()
    (path / "binary.txt").write_bytes(b"PK\x00\x01 no text")
    (path / "utf-16.txt").write_text("Kind Ann", encoding="utf-16")
    (path / "latin.txt").write_text("Grüße", encoding="latin-1")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield


def is_sentence(message, names):
    """Say whether a message names one of these, and has the words and the end of a sentence."""
    named = re.search(rf"(?<!\w)({'|'.join(re.escape(name) for name in names if name)})(?!\w)", message, re.I)
    return bool(named) and len(message.split()) >= 6 and message.rstrip().endswith((".", "?", ")"))


@pytest.mark.slow
@pytest.mark.parametrize(("names", "call"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_a_bad_input_gets_an_error_of_ours(names, call):
    with pytest.raises((TypeError, ValueError, OSError)) as caught:
        call()
    message, trace = str(caught.value), caught.value.__traceback__
    last = traceback.extract_tb(trace)[-1]
    assert last.filename.startswith(PACKAGE), f"raised in {last.filename}"
    assert last.line.startswith("raise "), f"raised by {last.line}"
    assert is_sentence(message, names), message
    if told := re.match(r"(\w+): (?!there)(\w+) is ", message):
        called = " ".join(frame.f_code.co_qualname for frame, _ in traceback.walk_tb(trace))
        assert told[1] in called, message
        assert told[2] in names, message


COMMANDS = (
    *("--text=nowhere.txt", "--text=folder", "--text=empty.txt", "--text=binary.txt", "--text=utf-16.txt"),
    *("--text=", "--device=meta", "--device=nowhere", "--device=cuda:99", "--steps=0", "--steps=-1"),
    *("--steps=many", "--steps=2.5", "--batch-size=0", "--learning-rate=nan", "--learning-rate=0"),
    *("--evaluate-every=0", "--precision=int8", "--seed=-1", "--sample=-1", "--sample=few", "--config=huge"),
    *("--checkpoint=no/such/folder.pt", "--checkpoint=folder", "--checkpoint=binary.txt", "--colour=red"),
    "stories",
)


@pytest.mark.slow
@pytest.mark.parametrize("option", COMMANDS)
def test_a_bad_option_ends_the_command_with_a_sentence(option, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--text=text.txt", "--steps=1", "--batch-size=1", "--sample=1", option])
    if ended.value.code == 2:  # argparse writes the sentence itself
        assert re.search(
            r"error: (argument --\S+: \S+ \S+|unrecognized arguments: )", capsys.readouterr().err
        )
    else:
        name, _, value = option.removeprefix("--").partition("=")
        assert ended.value.code.startswith("training: ")
        assert is_sentence(ended.value.code, (name, name.replace("-", "_"), Path(value).name))


NUMBERS_OF_ALL_KINDS = (True, 0, 1, -1, -7, 3, 2.5, -0.5, NAN, INF, 1j, np.float64(1.5), np.int64(3))
OF_ALL_TYPES = (None, "", "x", "auto", b"x", [], [1], [[1.0]], (), (1, 2), {}, {"a": 1}, {1, 2}, range(3))
POOL = (
    *(*NUMBERS_OF_ALL_KINDS, *OF_ALL_TYPES, len, object(), dict, np.ones((5, 4)), nn.Linear(4, 4), Cache()),
    *(torch.tensor(1), torch.tensor(1.5), torch.tensor(True), torch.ones(0), torch.ones(5), MASK),
    *(x, x.double(), x[:0], x * INF, x * 1j, x.long(), x.to_sparse(), ids, ids[0].to(torch.int8)),
    *(q, q[..., :1], q[None], q.half(), q.bfloat16(), q[:, :0], q * NAN, torch.ones(2, 3, 4)),
    *(q.to("meta"), ids.to("meta"), MASK.to("meta")),
    *(torch.float16, torch.device("cpu"), torch.Generator()),
)
UNCHECKED = {
    ("train", "callback"),  # the errors of a function are its own
    ("online_softmax", "blocks"),  # a generator can be read only once
    ("RMSNorm", "x"),  # on another device than the module
    ("TokenShift", "x"),
}
JUDGED = (len,)  # of what can be called: `check` starts a process for each


def raw_error(function, arguments):
    """Return the error of a call, unless the package itself raised it or another argument is missing."""
    try:
        function(**arguments)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        ours = last.filename.startswith(PACKAGE) and last.line.startswith("raise ")
        if not ours and "required positional argument" not in str(error):
            return f"{error!r} from {last.filename}:{last.lineno}"
    return None


@pytest.mark.slow
@pytest.mark.parametrize("called", CALLS)
def test_whatever_is_passed_gets_an_error_of_ours_or_a_result(called):
    function, right = CALLS[called]
    parameters = signature(function.forward if isinstance(function, nn.Module) else function).parameters
    raw = {
        (argument, described(value)): error
        for argument in parameters
        for value in POOL
        if (called, argument) not in UNCHECKED
        and (function is not check or not callable(value) or value in JUDGED)
        and (error := raw_error(function, {**right, argument: value}))
    }
    assert not raw


def test_there_are_many_cases_and_none_twice():
    named = [case[0] for case in CASES]
    assert not [name for name in named if named.count(name) > 1]
    assert len(named) + len(COMMANDS) > 200


# What the messages say beyond that


def heads(n):
    return torch.ones(2, n, 5, 4)


def go_on(B, T):
    """Read B times T tokens after 2 times 4."""
    model, cache = gpt(), Cache()
    model(torch.zeros(2, 4, dtype=torch.long), cache)
    return model(torch.zeros(B, T, dtype=torch.long), cache)


# Each row: a call, and what its message says, in this order; … leaves some of it out.
BANANA = CharTokenizer("banana")
SAID = r"""
causal_mean_loop([[1.0]]) | causal_mean_loop expects a float tensor of shape (T, C) or (B, T, C) … list
causal_mean_matmul(x.long()) | causal_mean_matmul expects … dtype is torch.int64. … x.float()
causal_mean_softmax(x[0]) | causal_mean_softmax expects … shape is (4,). … x[:, None]
causal_mean_loop(q[None]) | shape is (1, 2, 5, 4). … x.flatten(0, -3)
causal_mean_loop(x[:0]) | T = 0. Pass at least one token
causal_mean_loop(x.to_sparse()) | layout is torch.sparse_coo. … x.to_dense()
causal_mask(-1) | causal_mask: T_q = -1, expected an integer of at least 0.
window_mask(3, 0) | window_mask: window = 0, expected an integer of at least 1.
prefix_mask(3, -1) | prefix_mask: prefix = -1, expected an integer of at least 0.
causal_mask(3, device="nowhere") | causal_mask: device = 'nowhere', expected a name such as 'cpu'
padding_mask(torch.tensor([1, 4]), 3) | padding_mask: lengths holds 4, expected integers from 0 to 3.
padding_mask(torch.tensor([-1, 4]), 3) | padding_mask: lengths holds -1
padding_mask([1, 2], 3) | lengths is list, expected an integer tensor of shape (B,). … real.sum(dim=-1)
padding_mask(ids, 3) | lengths is torch.int64, (1, 3), expected
softmax(ids, -1) | softmax: x is torch.int64, (1, 3), expected a float tensor. … .float()
softmax(x, 2) | softmax: dim = 2 of the shape (5, 4), expected a dimension that has entries.
softmax(x, -3) | softmax: dim = -3
softmax(x[:0], 0) | softmax: dim = 0 of the shape (0, 4)
softmax(x, None) | softmax: dim = None
softmax(torch.zeros(65505).half(), 0) | 65505 entries … torch.float16 overflows. … x.float()
attention_weights(q, q[..., :3]) | attention_weights: q has head_size 4 and k has head_size 3. A dot product
attention_weights(q[..., :0], q[..., :0]) | q and k have head_size 0, expected at least one channel.
attention_weights(q, q, scale=NAN) | attention_weights: scale = nan, expected a finite number below 2**63
attention(q, q, q[:, :3]) | attention: k holds 5 tokens and v holds 3. Each key needs its value.
attention([[1.0]], x, x) | q is list, expected a float tensor. … torch.as_tensor(q).float()
attention(x[0], x, x) | q has shape (4,), expected (..., T, channels): q[None].
attention(x, x[0], x) | k has shape (4,)
attention(x, x, x[0]) | attention: v has shape (4,)
attention(x, x.long(), x) | k is torch.int64, (5, 4), expected a float tensor.
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
attend(q, q, q[:, :3]) | attend: k holds 5 tokens and v holds 3.
attend(heads(6), heads(2), heads(2)) | The leading dimensions of k must broadcast to those of q
attend(heads(6), heads(4), heads(2), enable_gqa=True) | k has shape (2, 4, 5, 4), expected
attend(heads(6), heads(2), heads(0), enable_gqa=True) | v has shape (2, 0, 5, 4) … the heads of q a multiple
attend(heads(6), heads(2), torch.ones(3, 2, 5, 4), enable_gqa=True) | leading dimensions of v must
flash_attention(q, q[..., :3], q) | flash_attention: q has head_size 4 and k has head_size 3.
flash_attention(q, q, q[:, :3]) | flash_attention: k holds 5 tokens and v holds 3.
online_softmax([]) | online_softmax: there is no block, expected at least one pair (scores, values).
online_softmax([([[1.0]], x)]) | a block has scores of list, expected a float tensor.
online_softmax([(x, x.long())]) | a block has values of torch.int64, (5, 4), expected a float tensor.
online_softmax([(x, x)]) | a block has scores of shape (5, 4) and values of shape (5, 4), expected
online_softmax([(x[0], x)]) | a block has scores of shape (4,)
online_softmax([(x[:, :0], x[:0])]) | and at least one key
online_softmax([(x, x[:4].double())]) | scores of torch.float32 and values of torch.float64, expected one
Head(4, 4, 0) | Head: d_v = 0, expected an integer of at least 1.
CrossAttentionHead(4, 4, 2, 0) | CrossAttentionHead: d_v = 0
Head(4, 2)(x[:, :3]) | Head: x is torch.float32, (5, 3), expected … (..., T, 4): the module was built for
Head(4, 2)(x.long()) | Head: x is torch.int64, (5, 4), expected … .float()
MultiHeadAttention(4, 2)(q.double()) | x is torch.float64, expected it in the dtype of the module:
CrossAttentionHead(5, 4, 2)(x, x) | CrossAttentionHead: x is … (..., T, 5)
MultiHeadAttentionList(4, 2)(x) | MultiHeadAttentionList: x has shape (5, 4) … (B, T, 4) … x[None].
MultiHeadAttention(4, 2)(q[:0]) | MultiHeadAttention: x has shape (0, 5, 4) … with at least one token
MultiHeadAttentionList(64, 5) | n_embd = 64 cannot be split into n_head = 5 heads … that divides 64.
fuse(MultiHeadAttention(4, 2)) | fuse: heads is MultiHeadAttention, expected MultiHeadAttentionList.
to_torch(MultiHeadAttentionList(4, 2)) | to_torch: fused is MultiHeadAttentionList, expected
leak_probe(abs, x * NAN) | leak_probe: x has shape (5, 4) and holds inf, NaN
leak_probe(abs, torch.full((2, 2), 4095.0).half()) | too large for torch.float16
leak_probe(pair, x) | leak_probe: what the function returns is tuple, expected Tensor.
leak_probe(total, x) | the function returns the shape (), expected (T, D)
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
table(5)(ids - 1) | BigramLanguageModel: ids holds -1, expected
GPT(None) | GPT: config is NoneType, expected GPTConfig.
GPTConfig(7, dropout=1.0) | GPTConfig: dropout = 1.0, expected 0 <= dropout < 1.
LlamaConfig(7, n_layer=0) | LlamaConfig: n_layer = 0, expected an integer of at least 1.
dtype_of("int8", torch.device("cpu")) | There is no precision called 'int8'. There are: float32, bfloat16,
generate(gpt(), "text", 3) | generate: ids is str, expected … tokenizer.encode(text)[None]
generate(gpt(), ids[:, :0], 3) | generate: ids has shape (1, 0). Give at least one token
generate(gpt(), ids.to("meta"), 3) | generate: ids is on meta and the model on cpu. Move it: ids.to(...).
generate(gpt(), ids, -1) | generate: max_new_tokens = -1, expected an integer of at least 0.
generate(gpt(), ids, 3, temperature=INF) | generate: temperature = inf, expected … of at least 0, below
generate(gpt(), ids, 3, top_k=0) | generate: top_k = 0, expected an integer of at least 1.
generate(gpt(), ids, 3, generator=0) | generate: generator is int, expected … manual_seed(seed)
generate(gpt(), ids, 3, cache=filled(T=3)) | generate: the cache holds 3 tokens, and ids has 3, expected
generate(table(V), ids, 3, cache=Cache()) | generate: BigramLanguageModel takes no cache. Leave it out.
generate(nn.Linear(2, 2), ids, 3) | Linear has block_size = None, expected … block_size = 128
group_size_of(9, 2) | n_head = 9 heads cannot share n_kv_head = 2 heads … Choose an n_kv_head that divides 9.
Llama(GPTConfig(13)) | Llama: config is GPTConfig, expected LlamaConfig.
Llama(LlamaConfig(7, n_embd=18, n_head=6)) | Rotary: head_size = 3, expected an even number
Rotary(4, 9, 0) | Rotary: base = 0, expected a number of at least 1, below 2**63.
RMSNorm(4, -1e-5) | RMSNorm: eps = -1e-05, expected a number of at least 0, below 2**63.
Rotary(4, 9)(x, 8) | rotate_pairs: for x of shape (5, 4), cos has shape (1, 2), expected (T, head_size / 2)
rotate_pairs(x, ANGLES, ANGLES[:1]) | rotate_pairs: for x of shape (5, 4), sin has shape (1, 2), expected
GroupedQueryAttention(4, 2, 1, Rotary(4, 9))(q) | Rotary: x is … expected a float tensor of shape (..., T, 4)
newton_schulz(torch.ones(3)) | newton_schulz: matrix is torch.float32, (3,), expected a float matrix.
Muon([{"params": [nn.Parameter(torch.ones(3))], "orthogonal": True}]) | has shape (3,), expected a matrix.
speedrun(DATA, ["mun"]) | There is no trick called 'mun'. Did you mean 'muon'?
speedrun(DATA, "muon") | speedrun: tricks is str, expected names, for example ['muon'].
speedrun(DATA, [], text="poems") | There is no text called 'poems'.
speedrun(DATA, steps=0) | steps = 0
ablate(gpt(), [(1, 0)]).__enter__() | there is no head (1, 0) … (layer, head) … from 0 to 0 and … 0 to 1.
ablate(gpt(), (pair for pair in [(0, 0)])).__enter__() | ablate: heads is generator, expected Sequence or Set.
conditional_entropy(ids[0], 4) | conditional_entropy: n = 4 with 3 ids, expected 1 <= n <= 3.
BANANA.encode("bananжa") | 'ж' (U+0436) at position 5 is not one of the 3 … text.replace('ж', '')
CharTokenizer("ab\ud83d") | '\ud83d' at position 2 of the text is half of a surrogate pair, not a character.
BANANA.decode(torch.tensor([0, 1, 3])) | id 3 at position 2 is not in the vocabulary: ids go from 0 to 2.
BANANA.decode(torch.tensor([0, -1])) | id -1 at position 1
train_val_split(torch.arange(10), 0.95) | val_share = 0.95 of 10 ids, expected a share between 0 and 1
train_val_split(torch.arange(1)) | val_share = 0.1 of 1 ids
get_batch(torch.arange(8), 8, 2) | 8 ids are too few for block_size = 8: … at least 9 are needed.
get_batch(ids, 4, 2) | get_batch: ids is torch.int64, (1, 3), expected an integer tensor of shape (T,). … one
load_text(None) | load_text: name_or_path is NoneType, expected str or PathLike.
draw_story(0) | draw_story: rng is int, expected random.Random(seed).
answers(None) | answers: text is NoneType, expected str.
read_story("hello") | read_story: 'hello' is not a story. Expected a fact about two people, … as in 'Kind Ann
answer_accuracy(gpt(), "Sam gave Kim a ring.", TOKENIZER) | no answer … of 20 characters has block_size = 8
"""


@pytest.mark.parametrize(("call", "said"), [line.split(" | ") for line in SAID.strip().splitlines()])
def test_a_message_says_what_was_wrong_what_was_expected_and_what_to_do(call, said):
    with pytest.raises((TypeError, ValueError)) as caught:
        eval(call)
    assert str(caught.traceback[-1].path).startswith(PACKAGE)
    message, place = str(caught.value), 0
    for words in said.split(" … "):
        place = message.find(words, place)
        assert place >= 0, f"{words!r} is not in {message!r}, or not in this order"
