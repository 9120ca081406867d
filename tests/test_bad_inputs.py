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
from attention_course.speedrun import TokenShift, fast_gpt, newton_schulz, speedrun
from attention_course.stories import (
    answer_accuracy,
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

pytestmark = [pytest.mark.usefixtures("shapes_unchecked"), pytest.mark.slow]
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


WORDS = {
    "data": ["text"],
    "ids": ["text"],
    "path": ["checkpoint"],
    "name_or_path": ["path"],
    "tricks": ["trick"],
}  # of an argument


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
                *WORDS.get(argument, ()),
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


NO_TOKENS = (
    None,
    [[1.0, 2.0]],
    "abc",
    np.ones((5, 4)),
    torch.ones(5, 4, dtype=torch.long),
    torch.ones(5, 4, dtype=torch.bool),
    torch.ones(5, 4, dtype=torch.complex64),
    torch.tensor(1.0),
    torch.ones(5),
    torch.ones(1, 1, 5, 4),
    torch.ones(0, 4),
)
NO_SIZE = (-1, 3.0, "3")
NO_IDS = (None, [0, 1], "ab", torch.ones(3), torch.zeros(1, 3, dtype=torch.long), torch.tensor(0))
NO_BATCH = (
    None,
    [[0, 1]],
    "ab",
    torch.ones(1, 3),
    torch.zeros(3, dtype=torch.long),
    torch.zeros(1, 0, dtype=torch.long),
    torch.full((1, 3), V),
    torch.full((1, 3), -1),
)
NO_MASK = (
    [[True] * 5] * 5,
    "causal",
    torch.ones(5, 5),
    torch.ones(5, 5, dtype=torch.long),
    torch.ones(4, 5, dtype=torch.bool),
    torch.ones(5, dtype=torch.long),
)
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
ATTENTION = [
    *wrong(
        causal_mask,
        {"T_q": 3},
        T_q=NO_SIZE,
        T_k=(-1, 2.5, "3"),
    ),
    *wrong(window_mask, {"T_q": 3, "window": 2}, T_q=(-1, 2.5), window=(-1, 0, 1.5, None, "2"), T_k=(-1,)),
    *wrong(prefix_mask, {"T_q": 3, "prefix": 2}, T_q=(-1, 2.5), prefix=(-1, 1.5, None, "2"), T_k=(-1,)),
    *wrong(
        padding_mask,
        {"lengths": torch.tensor([1, 2]), "T_k": 3},
        lengths=([1, 2], None, torch.tensor([1, 4]), torch.tensor([-1, 2]), torch.tensor([1.0, 2.0])),
        T_k=(-1, 2.5, None),
    ),
    *wrong(
        softmax,
        {"x": x, "dim": -1},
        x=(None, [1.0, 2.0], torch.ones(3, dtype=torch.long)),
    ),
    *wrong(
        attention_weights,
        {"q": q, "k": q},
        q=(None, [[1.0]], torch.ones(5), torch.ones(2, 5, 4, dtype=torch.long)),
        k=(None, torch.ones(2, 5, 3), torch.ones(3, 5, 4), torch.ones(5), q.to("meta")),
        mask=(*NO_MASK, causal_mask(5, device="meta")),
        scale=("1", True, NAN, INF, causal_mask(5), 1j),
    ),
    *(
        case
        for function in (attention, attend)
        for case in wrong(
            function,
            QKV,
            q=(None, [[1.0]]),
            k=(None, torch.ones(2, 5, 3), torch.ones(3, 5, 4)),
            v=(None, torch.ones(2, 3, 4), torch.ones(3, 5, 4)),
            mask=NO_MASK,
        )
    ),
    ("attention-q of one text, k and v of a batch", ("attention", "q"), lambda: attention(q[0], q, q)),
    *wrong(Head(4, 2), {"x": x}, "Head", x=([[1.0]], torch.ones(5, 3)), mask=NO_MASK[:4]),
    *wrong(
        MultiHeadAttention,
        {"n_embd": 8, "n_head": 2},
        n_embd=(7, 0, 8.0),
        n_head=(0, -1, 3, 2.0),
    ),
    *wrong(MultiHeadAttentionList, {"n_embd": 8, "n_head": 2}, n_embd=(7, 0, 8.0), n_head=(0, -1, 3, 2.0)),
    *wrong(
        MultiHeadAttention(4, 2),
        {"x": q},
        "MultiHeadAttention",
        x=(None, [[[1.0]]], torch.ones(2, 5, 3), torch.ones(5, 4), torch.ones(2, 5, 4, dtype=torch.long)),
        mask=NO_MASK,
    ),
    *wrong(
        leak_probe,
        {"function": causal_mean_loop, "x": x},
        function=(None, x, "mean", nothing, pair, total),
        x=(*NO_TOKENS[:5], torch.ones(5), torch.full((5, 4), NAN), torch.ones(5, 4, device="meta")),
    ),
]


def table(n):
    return BigramLanguageModel(n)


SIZES = {"vocab_size": 7, "block_size": 8, "n_layer": 1, "n_head": 2, "n_embd": 4}
GENERATE = {"model": gpt(), "ids": ids, "max_new_tokens": 2}
MODELS = [
    *wrong(
        GPTConfig,
        SIZES,
        vocab_size=(0, -1, 7.0, "7", None),
        block_size=(0, 2.5),
        n_layer=(0, -1, "1"),
        n_head=(0, 3, 2.0),
        n_embd=(5, 0, None),
        dropout=(1, 1.5, -0.1, NAN, "0.1", None),
    ),
    *wrong(GPT, None, config=(64, SIZES)),
    *wrong(gpt(), None, "GPT", ids=(*NO_BATCH, torch.zeros(1, 9, dtype=torch.long))),
    *wrong(table(V), None, "BigramLanguageModel", ids=NO_BATCH[:4] + NO_BATCH[-2:]),
    *wrong(
        generate,
        GENERATE,
        model=(*NO_MODEL, nn.Linear(2, 2), Nano(), gpt(NAN), gpt(INF)),
        ids=NO_BATCH,
        max_new_tokens=(-1, 2.5),
        temperature=(-1, NAN),
        top_k=(0, -1, 2.5),
        cache=({}, True, "cache", filled(T=3)),
    ),
    ("generate-a model without a cache", ("cache",), lambda: generate(table(V), ids, 2, cache=Cache())),
    *wrong(gpt(), {"ids": ids}, "GPT.Cache", cache=({}, True, filled(B=2), filled(T=7))),
    ("Cache-of another model", ("Cache",), lambda: gpt()(ids, filled())),
]

ANGLES = torch.ones(5, 2)
LLAMA = [
    *wrong(group_size_of, {"n_head": 6, "n_kv_head": 2}, n_head=(0, 3, 2.0, None), n_kv_head=(0, 4, "2")),
    *wrong(RMSNorm(4), None, "RMSNorm", x=(None, [[1.0]], x[:, :1], x.long(), torch.ones(2, 5, 8))),
    *wrong(RMSNorm, {"n_embd": 4}, n_embd=(0, 4.0, None), eps=(-1, NAN, INF, "0", None)),
    *wrong(
        Rotary,
        {"head_size": 4, "block_size": 8},
        head_size=(0, 3, 4.0, None),
        block_size=(0, -1, 8.0),
        base=(0, -1, NAN, INF, "1e4", None),
    ),
    *wrong(Rotary(4, 8), None, "Rotary.rotate_pairs", x=(None, [[1.0]], torch.ones(5, 6), torch.ones(9, 4))),
    *wrong(Rotary(4, 8), {"x": x}, "Rotary.rotate_pairs.cos", start=(4, -1, -7, 2.5, None)),
    *wrong(
        rotate_pairs,
        {"x": x, "cos": ANGLES, "sin": ANGLES},
        x=(None, "ab", torch.ones(4), torch.ones(5, 3)),
        cos=(None, 1.0, torch.ones(2), torch.ones(1, 2), torch.ones(5, 1)),
        sin=(None, torch.ones(5, 4)),
    ),
    *wrong(
        GroupedQueryAttention,
        {"n_embd": 12, "n_head": 6, "n_kv_head": 2},
        n_embd=(7, 0, 12.0),
        n_head=(0, 5, 2.0),
        n_kv_head=(0, 4, 12, None),
    ),
    *wrong(
        GroupedQueryAttention(4, 2, 1),
        {"x": q},
        "GroupedQueryAttention",
        x=(None, [[[1.0]]], torch.ones(2, 5, 3), torch.ones(5, 4), torch.ones(2, 5, 4, dtype=torch.long)),
        mask=NO_MASK,
    ),
    *wrong(SwiGLU, {"n_embd": 4, "n_hidden": 3}, n_embd=(0, 4.0), n_hidden=(0, None)),
    *wrong(SwiGLU(4, 3), None, "SwiGLU", x=(None, [[1.0]], torch.ones(5, 3))),
    *wrong(
        LlamaConfig,
        SIZES | {"n_kv_head": 1},
        vocab_size=(0, 7.0),
        n_head=(0, 3),
        n_kv_head=(0, 3, None),
        n_hidden=(0, 2.5, "8"),
    ),
    *wrong(Llama, None, config=(None, GPTConfig(V), SIZES)),
    *wrong(llama(), None, "GPT.Llama", ids=(*NO_BATCH, torch.zeros(1, 9, dtype=torch.long))),
    *wrong(
        attend,
        {"q": torch.ones(6, 5, 4), "k": torch.ones(2, 5, 4), "v": torch.ones(2, 5, 4), "enable_gqa": True},
        q=(x, torch.ones(5, 5, 4), torch.ones(2, 6, 5, 4)),
        k=(x, torch.ones(4, 5, 4), torch.ones(0, 5, 4)),
        v=(x, torch.ones(4, 5, 4)),
    ),
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

TEXTS = [
    *wrong(write_stories, {"characters": 9}, characters=(0, -1, "10")),
    *wrong(read_story, None, line=("", "Once upon a time")),
    *wrong(stories_entropy, None, text=("Kind Ann", "once\n")),
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
    *wrong(
        TOKENIZER.decode, None, "CharTokenizer.decode", ids=(*NO_IDS, torch.tensor([V]), torch.tensor([-1]))
    ),
    *wrong(
        conditional_entropy,
        {"ids": DATA.val, "n": 2},
        ids=(*NO_IDS, torch.zeros(0, dtype=torch.long)),
        n=(0, -1, 2.5, 10**6),
    ),
    *wrong(train_val_split, {"ids": DATA.val}, ids=NO_IDS, val_share=(0, 1, -0.1, NAN)),
    *wrong(
        get_batch,
        {"ids": DATA.val, "block_size": 4, "batch_size": 2},
        ids=(*NO_IDS, torch.zeros(4, dtype=torch.long)),
        block_size=(0, -1, 2.5, 10**6),
        batch_size=(0, -1, 2.5),
    ),
    *wrong(Data.of, None, "Data.of.CharTokenizer", text=("", None, ["a"])),
    *wrong(
        load_text,
        None,
        name_or_path=(
            *NO_PATH,
            "",
            "no such file",
            "storys",
            STORIES,
            b"stories",
            "folder",
            "empty.txt",
            "binary.txt",
            "utf-16.txt",
            "latin.txt",
        ),
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
PLOTS = [
    *wrong(
        Heatmap,
        HEATMAP,
        values=(None, [[1.0]], np.ones((2, 2)), torch.ones(3), torch.ones(1, 2, 3), x * 1j, x[:0]),
        rows=("abc", range(5), 5),
        columns=("abcde", [0, 1, 2, 3]),
        limit=(-1, NAN),
        tile=("ab",),
    ),
    *wrong(
        Bars,
        BARS,
        heights=(None, [1, 2, 3], torch.ones(2), torch.ones(3, 1)),
        labels=("ab", range(3), None),
        limits=(None, 1, (1, 0), (0, NAN), ("a", "b")),
    ),
    *wrong(
        Histogram,
        {"title": "t", "density": torch.ones(3), "limits": (0, 1), "x_label": "x"},
        density=(None, [1.0], torch.ones(2, 2)),
        limits=(None, (1, 1)),
        curve=([1.0], torch.ones(2, 2)),
    ),
    *wrong(
        Scatter,
        {"title": "t", "points": torch.ones(3, 2), "labels": "abc", "limits": (0, 1)},
        points=(None, [[1.0, 2.0]], torch.ones(3), torch.ones(3, 3)),
        labels=("ab", None),
        lit=([True] * 3, torch.ones(2)),
        path=([[1.0, 2.0]], torch.ones(2), torch.ones(0, 2)),
    ),
    *wrong(
        Lines,
        {"title": "t", "x": torch.ones(3), "curves": {"a": torch.ones(3)}, "x_label": "x", "y_label": "y"},
        x=(None, [1.0, 2.0, 3.0], torch.ones(2)),
        curves=(None, [torch.ones(3)], {"a": torch.ones(2)}, {"a": [1.0, 2.0, 3.0]}),
        levels=([1.0], {"a": 0}, {"a": NAN}, {"a": "1"}),
        x_limits=((0, 1), (2, 1), 3),
    ),
    *wrong(
        Text,
        {"title": "t", "text": "abc"},
        text=(None, 3, ids, 100_000 * "a"),
        values=([0.1] * 3, torch.ones(2)),
        framed=(3, -1, "a"),
        limit=(0, NAN, None),
    ),
    ("picture-none", ("picture", "panels"), lambda: picture(alt="")),
    ("picture-a tensor", ("picture", "panels"), lambda: picture(x, alt="")),
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
    "--text=nowhere.txt",
    "--text=folder",
    "--text=empty.txt",
    "--text=binary.txt",
    "--text=utf-16.txt",
    "--text=",
    "--device=meta",
    "--device=nowhere",
    "--device=cuda:99",
    "--steps=0",
    "--steps=-1",
    "--steps=many",
    "--steps=2.5",
    "--batch-size=0",
    "--learning-rate=nan",
    "--learning-rate=0",
    "--evaluate-every=0",
    "--precision=int8",
    "--seed=-1",
    "--sample=-1",
    "--sample=few",
    "--config=huge",
    "--checkpoint=no/such/folder.pt",
    "--checkpoint=folder",
    "--checkpoint=binary.txt",
    "--colour=red",
    "stories",
)


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


POOL = (
    *(
        None,
        True,
        0,
        1,
        -1,
        -7,
        3,
        2.5,
        -0.5,
        NAN,
        INF,
        1j,
        "",
        "x",
        "auto",
        b"x",
        [],
        [1],
        [[1.0]],
        (),
        (1, 2),
    ),
    *({}, {"a": 1}, {1, 2}, range(3), len, object(), dict, np.float64(1.5), np.int64(3), np.ones((5, 4))),
    *(
        torch.tensor(1),
        torch.tensor(1.5),
        torch.tensor(True),
        torch.ones(0),
        torch.ones(5),
        x,
        x.double(),
        x[:0],
    ),
    *(
        q,
        q[..., :1],
        q[None],
        q.half(),
        q.bfloat16(),
        q[:, :0],
        q * NAN,
        x * INF,
        x * 1j,
        x.long(),
        x.to_sparse(),
    ),
    *(ids, ids[0].to(torch.int8), torch.ones(5, 5, dtype=torch.bool), torch.ones(2, 3, 4), nn.Linear(4, 4)),
    *(q.to("meta"), ids.to("meta"), torch.ones(5, 5, dtype=torch.bool, device="meta")),
    *(Cache(), torch.float16, torch.device("cpu"), torch.Generator()),
)
UNCHECKED = {
    ("train", "callback"),  # the errors of a function are its own
    ("online_softmax", "blocks"),  # a generator can be read only once
    ("RMSNorm", "x"),  # on another device than the module
    ("TokenShift", "x"),
}


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


@pytest.mark.parametrize("called", CALLS)
def test_whatever_is_passed_gets_an_error_of_ours_or_a_result(called):
    function, right = CALLS[called]
    parameters = signature(function.forward if isinstance(function, nn.Module) else function).parameters
    raw = {
        (argument, described(value)): error
        for argument in parameters
        for value in POOL
        if (called, argument) not in UNCHECKED and (error := raw_error(function, {**right, argument: value}))
    }
    assert not raw


def test_there_are_many_cases_and_none_twice():
    named = [case[0] for case in CASES]
    assert not [name for name in named if named.count(name) > 1]
    assert len(named) + len(COMMANDS) > 200
