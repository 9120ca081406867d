"""Training: what a step does, what is measured, how it stops, and how it goes on; here, there and by two."""

import argparse
import contextlib
import errno
import io
import math
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from attention_course import training
from attention_course.gpt import GPT, BigramLanguageModel, GPTConfig
from attention_course.text import (
    FACT,
    QUESTIONS,
    CharTokenizer,
    Data,
    answers,
    get_batch,
    ngram_floor,
    write_stories,
)
from attention_course.training import (
    History,
    Recipe,
    Trainer,
    evaluate,
    load_model,
    read_checkpoint,
    recall,
    run,
    train,
)

TEXT = write_stories(seed=3, characters=4000)
DATA = Data.of(TEXT)
RECIPE = Recipe(steps=10, batch_size=4, learning_rate=1e-2, warmup=3, evaluate_every=4, precision="float32")


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    sizes = {"vocab_size": DATA.tokenizer.vocab_size, "block_size": 7, "n_layer": 1, "n_head": 2, "n_embd": 6}
    return GPT(GPTConfig(**sizes | changes))


def equal(model, other):
    ours, theirs = model.state_dict(), other.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def without_clock(history):
    return replace(history, val_seconds=[0.0 for _ in history.val_seconds])


# Recipe


def test_the_learning_rate_at_each_corner():
    recipe = Recipe(steps=10, warmup=4, learning_rate=1.0, final_learning_rate=0.1)
    expected = {0: 0.25, 1: 0.5, 3: 1.0, 4: 1.0, 7: 0.55, 10: 0.1, 15: 0.1}
    assert {step: recipe.learning_rate_at(step) for step in expected} == pytest.approx(expected)


@pytest.mark.parametrize(("steps", "warmup"), [(10, 0), (1, 0), (1, 1), (3, 10)])
def test_the_learning_rate_of_short_runs(steps, warmup):
    recipe = Recipe(steps=steps, warmup=warmup, learning_rate=1.0)
    rates = [recipe.learning_rate_at(step) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    assert rates[0] == (1.0 if warmup == 0 else 1 / warmup)
    assert 0 <= recipe.learning_rate_at(steps) <= 1


def test_each_step_has_the_learning_rate_of_the_recipe():
    trainer, rates = Trainer(tiny(), DATA, RECIPE), []
    run(trainer, watch=lambda t: rates.append({group["lr"] for group in t.optimizer.param_groups}))
    assert rates == [{RECIPE.learning_rate_at(step)} for step in range(10)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"batch_size": 0},
        {"evaluate_every": 0},
        {"warmup": -1},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"learning_rate": math.inf},
        {"clip": 0.0},
        {"clip": math.inf},
        {"beta2": 1.0},
        {"weight_decay": -0.1},
        {"weight_decay": math.inf},
        {"final_learning_rate": -1e-9},
        {"final_learning_rate": math.inf},
    ],
)
def test_numbers_out_of_range_are_refused_by_name(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=rf"{name} = {wrong[name]}, expected"):
        Recipe(**wrong)


@pytest.mark.parametrize(
    "least",
    [
        {"steps": 1},
        {"batch_size": 1},
        {"evaluate_every": 1},
        {"warmup": 0},
        {"beta2": 0.0},
        {"weight_decay": 0.0},
        {"final_learning_rate": 0.0},
    ],
)
def test_the_least_number_is_in_range(least):
    (name,) = least
    trainer = Trainer(tiny(), DATA, replace(RECIPE, **least))
    assert getattr(trainer.recipe, name) == least[name]
    assert math.isfinite(trainer.step())


def test_a_number_of_steps_must_be_whole():
    recipe = Recipe()
    object.__setattr__(recipe, "steps", 1e3)  # outside of tests no types are checked
    with pytest.raises(ValueError, match=r"steps = 1000.0, expected an integer"):
        recipe.__post_init__()


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'float32'"):
        Recipe(precision="float23")


# One step


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_the_gradient_is_clipped_when_it_is_too_long(clip):
    model = tiny()
    Trainer(model, DATA, replace(RECIPE, clip=clip)).step()
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))
    assert norm == pytest.approx(clip, rel=1e-2) if clip < 1 else 0.1 < norm < 10


def test_weights_decay_in_matrices_only():
    start, plain, decayed = (tiny(bias=True) for _ in range(3))
    recipe = replace(RECIPE, warmup=0, learning_rate=0.01)
    Trainer(plain, DATA, replace(recipe, weight_decay=0.0)).step()
    Trainer(decayed, DATA, replace(recipe, weight_decay=0.5)).step()
    for name, parameter in plain.named_parameters():
        lost = parameter - decayed.get_parameter(name)
        share = 0.01 * 0.5 if parameter.dim() == 2 else 0.0
        torch.testing.assert_close(lost, share * start.get_parameter(name), atol=1e-6, rtol=0)


def test_a_step_is_one_of_adamw_on_the_batches_of_the_generator():
    model, other = tiny(), tiny()
    trainer = Trainer(model, DATA, replace(RECIPE, weight_decay=0.0, clip=1e6))
    optimizer = torch.optim.AdamW(other.parameters(), betas=(0.9, 0.95), weight_decay=0.0)
    generator = torch.Generator().manual_seed(0)
    for step in range(3):
        optimizer.param_groups[0]["lr"] = RECIPE.learning_rate_at(step)
        x, y = get_batch(DATA.train, 7, 4, generator)
        torch.randint(2**31, (), generator=generator)
        loss = F.cross_entropy(other(x)[0].transpose(1, 2), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert trainer.step() == pytest.approx(loss.item(), abs=1e-5)


# A whole training


def markov_text(length):
    """A text in which each character depends on the one before it, and on nothing else."""
    rng = random.Random(0)
    follow = {"a": "aaab", "b": "ccca", "c": "abcd", "d": "dddb"}
    characters = ["a"]
    while len(characters) < length:
        characters.append(rng.choice(follow[characters[-1]]))
    return "".join(characters)


def test_a_bigram_model_comes_down_to_the_floor_of_a_text_without_longer_memory():
    data = Data.of(markov_text(30_000))
    torch.manual_seed(0)
    model = BigramLanguageModel(4)
    recipe = Recipe(steps=150, batch_size=16, learning_rate=0.1, warmup=5, weight_decay=0.0)
    before = evaluate(model, data.val)
    history = train(model, data, recipe, watch=lambda trainer: None)
    floor = ngram_floor(data.val, 2)
    assert before > floor + 0.5
    assert floor - 0.005 < history.val_losses[-1] < floor + 0.02


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_training_is_repeated_by_its_seed(dropout):
    runs = []
    for noise, seed in ((1, 5), (2, 5), (1, 6)):
        model = tiny(dropout=dropout)
        torch.manual_seed(noise)
        runs.append((train(model, DATA, replace(RECIPE, seed=seed), watch=lambda t: None), model))
    (first, model), (again, same), (other, changed) = runs
    assert first.losses == again.losses
    assert equal(model, same)
    assert first.losses != other.losses
    assert not equal(model, changed)


def test_a_training_leaves_the_random_numbers_of_others_alone():
    model = tiny(dropout=0.3)
    before = torch.get_rng_state()
    train(model, DATA, RECIPE, watch=lambda trainer: None)
    assert torch.equal(torch.get_rng_state(), before)


def test_each_step_has_its_own_dropout():
    """The same batch each time, and no update: only dropout can change the loss."""
    data = replace(DATA, train=DATA.train[:8])
    trainer = Trainer(tiny(dropout=0.5), data, replace(RECIPE, learning_rate=1e-12))
    assert len({trainer.step() for _ in range(4)}) == 4


def test_the_history_is_complete():
    model = tiny()
    history = train(model, DATA, RECIPE, watch=lambda trainer: None)
    assert len(history.losses) == 10
    assert history.val_steps == [4, 8, 10]
    assert len(history.val_losses) == 3
    assert history.val_losses[-1] == evaluate(model, DATA.val, "float32")
    assert 0 < history.val_seconds[0] < history.val_seconds[1] < history.val_seconds[2]
    assert not history.stopped


def test_the_model_is_in_training_mode_while_it_trains_and_in_eval_mode_after():
    model, modes = tiny().eval(), set()
    train(model, DATA, RECIPE, watch=lambda trainer: modes.add(trainer.model.training))
    assert modes == {True}
    assert not model.training


def test_the_bar_counts_every_step(capsys):
    train(tiny(), DATA, RECIPE, name="my model")
    shown = capsys.readouterr().err
    assert "my model" in shown
    assert "10 of 10" in shown
    trainer = Trainer(tiny(), DATA, RECIPE)
    run(trainer, watch=lambda trainer: trainer.steps_done == 4)
    assert capsys.readouterr().err == "", "who watches sees to it that something is shown"
    run(trainer)
    shown = capsys.readouterr().err
    assert "\rtraining " in shown
    assert "4 of 10" in shown
    assert "10 of 10" in shown
    assert "11 of 10" not in shown
    trainer = Trainer(tiny(), DATA, RECIPE)
    trainer.rank = 1
    run(trainer)
    assert capsys.readouterr().err == "", "one process of several shows a bar"


def test_the_bar_moves_a_hundred_times_however_slow_the_steps_are(monkeypatch, capsys):
    monkeypatch.setattr(training, "tqdm", partial(training.tqdm, mininterval=0))
    train(tiny(), DATA, replace(RECIPE, steps=300))
    assert 100 <= capsys.readouterr().err.count("of 300") <= 103


@pytest.mark.parametrize(("kind", "length"), [("training", 7), ("validation", 7), ("validation", 0)])
def test_a_text_that_is_too_short_is_refused_at_once(kind, length):
    short = replace(DATA, **{kind[: 5 if kind == "training" else 3]: DATA.val[:length]})
    with pytest.raises(ValueError, match=rf"The {kind} text has {length} tokens.* at least 8 are needed"):
        Trainer(tiny(), short, RECIPE)


def test_the_shortest_texts_will_do():
    data = Data(DATA.train[:8], DATA.val[:8], DATA.tokenizer)
    assert len(train(tiny(), data, RECIPE, watch=lambda trainer: None).val_losses) == 3


# Precision and threads


class Spy(nn.Module):
    """Notes in what precision it is called, and by how many threads."""

    block_size = 3

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(DATA.tokenizer.vocab_size, DATA.tokenizer.vocab_size)
        self.seen = set()

    def forward(self, ids):
        self.seen.add((self.table.weight[:2] @ self.table.weight.T[:, :2]).dtype)
        return self.table(ids), None


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_recipe_sets_the_precision_of_training_and_evaluation(precision):
    model = Spy()
    trainer = Trainer(model, DATA, replace(RECIPE, precision=precision))
    for measure in (trainer.step, trainer.evaluate):
        model.seen.clear()
        measure()
        assert model.seen == {getattr(torch, precision)}


@pytest.mark.parametrize(
    ("found", "expected"),
    [({"amx_bf16": True}, torch.bfloat16), ({"avx512_bf16": True}, torch.float32), ({}, torch.float32)],
)
def test_auto_is_bfloat16_where_there_are_circuits_for_it(monkeypatch, found, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    model = Spy()
    Trainer(model, DATA, replace(RECIPE, precision="auto")).step()
    assert model.seen == {expected}


@pytest.mark.parametrize("able", [True, False])
def test_auto_asks_a_gpu_for_circuits_of_its_own(monkeypatch, able):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": not able})
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: able or including_emulation
    )
    expected = torch.bfloat16 if able else torch.float32
    assert training.fast_precision(torch.device("cuda")) is expected


@pytest.mark.parametrize(
    ("cores", "asked", "expected"), [(64, None, [8, 64]), (2, None, [2, 2]), (64, "64", [64, 64])]
)
def test_at_most_eight_threads_unless_told_otherwise(monkeypatch, cores, asked, expected):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    chosen = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    train(tiny(), DATA, replace(RECIPE, steps=1), watch=lambda trainer: None)
    assert chosen == expected


# Loss and recall


@pytest.mark.parametrize("length", [8, 14, 15, 400])
def test_evaluate_equals_a_loop_over_the_pieces(length):
    model, ids, losses = tiny(), DATA.val[:length], []
    with torch.no_grad():
        for start in range(0, length - 7, 7):
            logits = model(ids[start : start + 7][None])[0][0]
            losses += [-logits[t].log_softmax(-1)[ids[start + t + 1]].item() for t in range(7)]
    assert evaluate(model, ids, "float32") == pytest.approx(sum(losses) / len(losses), abs=1e-5)


def test_evaluate_weighs_each_piece_alike():
    """65 pieces: 64 are seen at once, and the last one by itself."""
    model, ids = tiny(), DATA.train[: 65 * 7 + 1]
    loss = F.cross_entropy(model(ids[:-1].view(65, 7))[0].flatten(0, 1), ids[1:]).item()
    assert evaluate(model, ids, "float32") == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("mode", [True, False])
def test_measuring_is_without_dropout_and_leaves_the_mode_as_it_was(mode):
    plain, model = tiny(), tiny(dropout=0.9).train(mode)
    assert evaluate(model, DATA.val) == evaluate(plain, DATA.val)
    recall(model, TEXT, DATA.tokenizer)
    assert model.training == mode
    with pytest.raises(IndexError):
        evaluate(model, DATA.val + 1000)
    assert model.training == mode


class Reader(nn.Module):
    """Reads the fact of a story with the course's own expressions, and answers questions about it."""

    def __init__(self, tokenizer, block_size=160, keys=tuple(QUESTIONS)):
        super().__init__()
        self.tokenizer, self.block_size, self.keys = tokenizer, block_size, keys
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, ids):
        rows = [[self.next(self.tokenizer.decode(row[: t + 1])) for t in range(len(row))] for row in ids]
        return F.one_hot(torch.tensor(rows), self.tokenizer.vocab_size).float() + self.bias, None

    def next(self, read):
        asked = max(QUESTIONS, key=lambda key: read.rfind(QUESTIONS[key]))
        *_, fact = [None, *FACT.finditer(read)]
        begun = read.rsplit(QUESTIONS[asked], 1)[-1]
        told = fact[asked] + "." if fact and asked in self.keys else ""
        right = told.startswith(begun) and len(begun) < len(told)
        return int(self.tokenizer.encode(told[len(begun)] if right else "?")[0])


STORIES = write_stories(seed=1, characters=1500)
LETTERS = CharTokenizer(STORIES)


def test_a_reader_recalls_every_answer():
    assert recall(Reader(LETTERS), STORIES, LETTERS) == 1


def test_recall_is_the_share_of_answers():
    reader = Reader(LETTERS, keys=("place", "thing"))
    kept = [STORIES[:start] for start, end in answers(STORIES) if end > reader.block_size]
    right = sum(before.endswith((QUESTIONS["place"], QUESTIONS["thing"])) for before in kept)
    assert recall(reader, STORIES, LETTERS) == right / len(kept)


def test_recall_shows_no_more_than_block_size_characters():
    assert recall(Reader(LETTERS, block_size=45), STORIES, LETTERS) < 0.5


def test_an_answer_counts_when_block_size_characters_stand_before_its_last_one():
    end = next(end for _, end in answers(STORIES) if end > 160)
    assert recall(Reader(LETTERS, block_size=end - 1), STORIES[: end + 1], LETTERS) == 1
    with pytest.raises(ValueError, match="no answer"):
        recall(Reader(LETTERS, block_size=end), STORIES[: end + 1], LETTERS)


def test_a_bigram_model_recalls_nothing():
    counts = torch.zeros(LETTERS.vocab_size, LETTERS.vocab_size)
    ids = LETTERS.encode(STORIES)
    counts.index_put_((ids[:-1], ids[1:]), torch.ones(len(ids) - 1), accumulate=True)
    model = BigramLanguageModel(LETTERS.vocab_size)
    model.table.weight.data = counts.add(1e-3).log()
    assert evaluate(model, ids, "float32") == pytest.approx(ngram_floor(ids, 2), abs=0.02)
    assert recall(model, STORIES, LETTERS) == 0


class Oracle(nn.Module):
    """Knows some stretches of ids by heart, and says nothing about others."""

    def __init__(self, stretches, block_size):
        super().__init__()
        self.block_size = block_size
        self.follows = {tuple(ids[:-1].tolist()): ids[1:] for ids in stretches}
        self.asked = []
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, ids):
        rows = [tuple(row) for row in ids.tolist()]
        self.asked += rows
        nothing = torch.full((self.block_size,), LETTERS.vocab_size)
        told = torch.stack([self.follows.get(row, nothing) for row in rows])
        return F.one_hot(told, LETTERS.vocab_size + 1).float() + self.bias, None


def test_recall_asks_for_the_first_thousand_answers_with_block_size_characters_before_them():
    text = write_stories(seed=2, characters=80_000)
    ids = LETTERS.encode(text)
    ends = [end for _, end in answers(text) if end > 160]
    stretches = [ids[end - 161 : end] for end in ends]
    oracle = Oracle(stretches[1:900], block_size=160)
    assert recall(oracle, text, LETTERS) == 0.899
    assert len(oracle.asked) == 1000 < len(ends)


@pytest.mark.parametrize("text", ["", "Sam gave Kim a ring. " * 20, STORIES[:150]])
def test_recall_of_a_text_without_answers_is_refused(text):
    with pytest.raises(ValueError, match="no answer in this text"):
        recall(Reader(LETTERS), text, LETTERS)


def test_evaluate_refuses_a_text_that_is_too_short():
    with pytest.raises(ValueError, match="The validation text has 7 tokens, too few for block_size = 7"):
        evaluate(tiny(), DATA.val[:7])


# Stopping


def whole_run():
    trainer = Trainer(tiny(dropout=0.3), DATA, RECIPE)
    run(trainer, watch=lambda t: None)
    return trainer


def interrupt(*given):
    raise KeyboardInterrupt


@pytest.fixture
def listening():
    """Interrupts arrive even if the tests run in the background, where the shell lets them be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def press(*given):
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("stop", [lambda trainer: True, press])
def test_watch_stops_after_its_step_and_the_training_can_go_on(listening, stop):
    trainer = Trainer(tiny(dropout=0.3), DATA, RECIPE)
    history = run(trainer, watch=lambda t: stop(t) if t.steps_done == 3 else False)
    assert history.stopped
    assert trainer.steps_done == len(history.losses) == 3
    assert not trainer.model.training
    assert not equal(trainer.model, tiny())
    assert run(trainer, watch=lambda t: None) is history
    expected = whole_run()
    assert without_clock(history) == without_clock(expected.history)
    assert equal(trainer.model, expected.model)


class Interrupted(GPT):
    """Somebody presses the kernel's stop button so often while it computes its fifth batch."""

    presses, calls = 1, 0

    def forward(self, ids, need_weights=False):
        self.calls += self.training
        if self.training and self.calls == 5:
            for _ in range(self.presses):
                press()
        return super().forward(ids, need_weights)


def test_an_interrupt_waits_for_the_end_of_the_step(listening):
    model = Interrupted(tiny(dropout=0.3).config)
    model.load_state_dict(tiny().state_dict())
    trainer = Trainer(model, DATA, RECIPE)
    seen = []
    history = run(trainer, watch=lambda t: seen.append(t.history.stopped))
    assert history.stopped
    assert seen == [False, False, False, False, True]
    assert trainer.steps_done == 5
    assert signal.getsignal(signal.SIGINT) is listening
    run(trainer, watch=lambda t: None)
    assert without_clock(history) == without_clock(whole_run().history)


def test_a_second_interrupt_does_not_wait(listening):
    model = Interrupted(tiny().config)
    model.presses = 2
    trainer = Trainer(model, DATA, RECIPE)
    with pytest.raises(KeyboardInterrupt):
        run(trainer, watch=lambda t: None)
    assert trainer.history.stopped
    assert not model.training
    assert trainer.steps_done == 4
    assert signal.getsignal(signal.SIGINT) is listening


def test_an_evaluation_that_is_interrupted_leaves_no_half_entry(monkeypatch):
    trainer = Trainer(tiny(), DATA, RECIPE)
    monkeypatch.setattr(trainer, "evaluate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(trainer, watch=lambda t: None)
    history = trainer.history
    assert len(history.losses) == trainer.steps_done == RECIPE.evaluate_every
    assert history.val_steps == history.val_losses == history.val_seconds == []


def test_an_interrupt_of_the_last_step_comes_too_late_to_stop_the_run(listening):
    model = Interrupted(tiny().config)
    trainer = Trainer(model, DATA, replace(RECIPE, steps=5))
    assert not run(trainer, watch=lambda t: None).stopped
    assert trainer.done


def test_after_a_training_interrupts_do_what_they_did_before(listening):
    train(tiny(), DATA, RECIPE, watch=lambda trainer: None)
    assert signal.getsignal(signal.SIGINT) is listening


def test_where_interrupts_are_ignored_they_stay_so(listening):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    model = Interrupted(tiny().config)
    assert not train(model, DATA, RECIPE, watch=lambda trainer: None).stopped
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_training_runs_in_any_thread(listening):
    histories = []
    thread = threading.Thread(target=lambda: histories.append(train(tiny(), DATA, RECIPE)))
    thread.start()
    thread.join()
    assert len(histories[0].losses) == 10


# Checkpoints


@pytest.fixture
def saved(tmp_path):
    """A checkpoint after 5 of 10 steps."""
    trainer, path = Trainer(tiny(dropout=0.3), DATA, RECIPE), tmp_path / "run.pt"
    run(trainer, watch=lambda t: t.steps_done == 5)
    trainer.save(path)
    return path


def test_a_resumed_training_is_the_uninterrupted_one_bit_by_bit(saved):
    trainer = Trainer(tiny(seed=8, dropout=0.3), DATA, RECIPE)
    trainer.load(saved)
    assert trainer.steps_done == 5
    assert trainer.seconds > 0
    torch.manual_seed(99)
    run(trainer, watch=lambda t: None)
    expected = whole_run()
    assert without_clock(trainer.history) == without_clock(expected.history)
    assert equal(trainer.model, expected.model)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_checkpoint_that_cannot_be_finished_leaves_the_old_one(saved, monkeypatch, error):
    def fail(file):
        raise error

    old = saved.read_bytes()
    trainer = Trainer(tiny(), DATA, RECIPE)
    trainer.step()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(type(error), match=r"could not be written: No space left|^$"):
            trainer.save(saved)
    assert saved.read_bytes() == old
    assert list(saved.parent.iterdir()) == [saved]
    trainer.save(saved)
    assert saved.read_bytes() != old


def test_a_checkpoint_that_cannot_be_written_says_why(tmp_path):
    (tmp_path / "file").touch()
    trainer = Trainer(tiny(), DATA, RECIPE)
    for path in (tmp_path / "nowhere/run.pt", tmp_path / "file/run.pt", tmp_path):
        with pytest.raises(
            OSError, match=f"The checkpoint {re.escape(str(path))} could not be written: [A-Z]"
        ):
            trainer.save(path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("model", "data", "recipe", "message"),
    [
        ({"n_layer": 2}, DATA, RECIPE, "its config is another one: n_layer = 1 there and 2 here"),
        ({"dropout": 0.0}, DATA, RECIPE, "its config is another one: dropout = 0.3 there and 0.0 here"),
        ({}, DATA, replace(RECIPE, steps=11), "its recipe is another one: steps = 10 there and 11 here"),
        ({}, replace(DATA, train=DATA.train[1:]), RECIPE, "its training text is another one"),
        ({}, replace(DATA, val=DATA.val.flip(0)), RECIPE, "its validation text is another one"),
        ({}, replace(DATA, tokenizer=CharTokenizer(TEXT + "é")), RECIPE, "its characters is another one"),
        (None, DATA, RECIPE, "its config is another one"),
    ],
)
def test_a_checkpoint_of_another_task_is_refused(saved, model, data, recipe, message):
    other = (
        BigramLanguageModel(DATA.tokenizer.vocab_size) if model is None else tiny(**{"dropout": 0.3} | model)
    )
    trainer = Trainer(other, data, recipe)
    with pytest.raises(ValueError, match=rf"run.pt does not fit: {message}"):
        trainer.load(saved)
    assert trainer.steps_done == 0


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_three_differences_are_named(saved, count):
    other = dict(list({"steps": 11, "batch_size": 3, "evaluate_every": 3, "seed": 9}.items())[:count])
    with pytest.raises(ValueError, match="its recipe is another one") as caught:
        Trainer(tiny(dropout=0.3), DATA, replace(RECIPE, **other)).load(saved)
    named = [f"{name} = {getattr(RECIPE, name)} there and {value} here" for name, value in other.items()]
    listed = re.search(r"another one: (.*)\. Train", str(caught.value))[1]
    assert listed == ", ".join(named[:3]) + ", ..." * (count > 3)


def test_a_checkpoint_of_a_table_of_another_size_is_refused(tmp_path):
    Trainer(BigramLanguageModel(40), DATA, RECIPE).save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"its model is another one: table.weight = \[40, 40\] there"):
        Trainer(BigramLanguageModel(41), DATA, RECIPE).load(tmp_path / "run.pt")


class Code:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def foreign_files(folder):
    """Yield contents that are no checkpoints; those with code would create the file `trace`."""
    Trainer(tiny(), DATA, RECIPE).save(folder / "whole")
    whole = (folder / "whole").read_bytes()
    yield from (whole[: len(whole) // 2], whole[:-1], b"", TEXT.encode())
    yield pickle.dumps(Code(folder / "trace"))
    state = torch.load(folder / "whole")
    yield from map(
        bytes_of,
        [
            Code(folder / "trace"),
            {"format": Code(folder / "trace")},
            tiny().state_dict(),
            [1],
            state | {"format": "attention_course checkpoint 0"},
            *({name: value for name, value in state.items() if name != part} for part in state),
            state | {"model": tiny(n_embd=8).state_dict()},
        ],
    )


def bytes_of(state):
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def test_foreign_and_damaged_files_are_refused_and_no_code_is_run(tmp_path):
    contents = list(foreign_files(tmp_path))
    assert len(contents) == 19
    for content in contents:
        (tmp_path / "run.pt").write_bytes(content)
        for read in (Trainer(tiny(), DATA, RECIPE).load, load_model):
            with pytest.raises(
                ValueError, match=r"run.pt is not a checkpoint of this course, or it is damaged"
            ):
                read(tmp_path / "run.pt")
        assert (tmp_path / "run.pt").read_bytes() == content
    assert not (tmp_path / "trace").exists()


def test_a_changed_bit_is_noticed_or_changes_nothing(tmp_path):
    path = tmp_path / "run.pt"
    Trainer(tiny(), DATA, RECIPE).save(path)
    whole, state = path.read_bytes(), bytes_of(read_checkpoint(path))
    assert bytes_of(read_checkpoint(path)) == state
    noticed = 0
    for position in range(7, len(whole), 101):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        with contextlib.suppress(ValueError):
            assert bytes_of(read_checkpoint(path)) == state  # some bytes of the file hold nothing
            continue
        noticed += 1
    assert noticed > 100


def test_why_a_file_is_no_checkpoint_is_said(tmp_path):
    path = tmp_path / "run.pt"
    trainer = Trainer(tiny(), DATA, RECIPE)
    trainer.save(path)
    whole, state = path.read_bytes(), torch.load(path)
    table = trainer.model.transformer.wte.weight.detach().numpy().tobytes()
    rest = {name: value for name, value in state.items() if name not in ("task", "generator")}
    for content, reason in [
        (TEXT.encode(), "BadZipFile"),
        (whole.replace(table, bytes(len(table))), r"the checksum of archive/data/\d+ is wrong"),
        (
            bytes_of(state | {"format": "new"}),
            "its format is 'new', expected 'attention_course checkpoint 1'",
        ),
        (bytes_of(rest), "it has no generator, task"),
        (
            bytes_of(state | {"model": tiny(n_embd=8).state_dict()}),
            "its parameters are not those of its model",
        ),
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"\(Reading it failed: {reason}\.\)$"):
            read_checkpoint(path)


def test_a_trainer_that_refuses_a_file_stays_as_it_was(tmp_path):
    trainer = Trainer(tiny(), DATA, RECIPE)
    before = bytes_of(trainer.model.state_dict())
    for content in foreign_files(tmp_path):
        (tmp_path / "run.pt").write_bytes(content)
        with pytest.raises(ValueError, match=r"run.pt is not a checkpoint"):
            trainer.load(tmp_path / "run.pt")
        assert bytes_of(trainer.model.state_dict()) == before
        assert trainer.steps_done == 0


def test_a_missing_checkpoint_is_named(tmp_path):
    for path in (tmp_path / "none.pt", tmp_path):
        with pytest.raises(FileNotFoundError, match=re.escape(f"no checkpoint file {path}")):
            read_checkpoint(path)


def test_a_model_comes_back_with_its_tokenizer(saved):
    trainer = Trainer(tiny(dropout=0.3), DATA, RECIPE)
    trainer.load(saved)
    model, tokenizer = load_model(saved)
    assert tokenizer == DATA.tokenizer
    assert not model.training
    assert model.config == trainer.model.config
    ids = DATA.val[None, :7]
    assert torch.equal(model(ids)[0], trainer.model.eval()(ids)[0])


def test_only_a_gpt_is_built_from_its_checkpoint(tmp_path):
    Trainer(BigramLanguageModel(40), DATA, RECIPE).save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"holds a model that is no GPT"):
        load_model(tmp_path / "run.pt")


# The command line

SMALL = ["--steps=4", "--batch-size=2", "--evaluate-every=2", "--sample=20", "--precision=float32"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(write_stories(seed=4, characters=6000))
    return path


@pytest.fixture
def start():
    """Start the command line in a process of its own; it does not outlive the test."""
    with contextlib.ExitStack() as processes:

        def started(*arguments, launcher=("-m",)):
            command = [sys.executable, *launcher, "attention_course.training", *map(str, arguments)]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            process = processes.enter_context(subprocess.Popen(command, env=environment, **pipes))
            processes.callback(process.kill)
            return process

        yield started


def test_the_command_line_prints_its_progress_and_a_table(text, capsys):
    training.main([f"--text={text}", *SMALL])
    *progress, _, head, unigram, bigram, trigram, gpt, _, sample = capsys.readouterr().out.split("\n")[:10]
    assert [line.split("validation loss")[0] for line in progress] == [
        "step     2 of 4   ",
        "step     4 of 4   ",
    ]
    assert all(re.search(r"\d\.\d{3} +\d+\.\d s +\d+\.\d steps/s +\d+ tokens/s$", line) for line in progress)
    for line in progress:
        steps, tokens = map(float, re.search(r"([\d.]+) steps/s +(\d+) tokens/s", line).groups())
        assert tokens / steps == pytest.approx(2 * GPTConfig(40).block_size, rel=0.05)
    assert head.split() == ["model", "parameters", "validation", "loss", "recall"]
    assert [line.split()[:4] for line in (unigram, trigram)] == [
        ["best", f"{n}-gram", "table,", "counted"] for n in (1, 3)
    ]
    losses = [float(line[40:57]) for line in (unigram, bigram, trigram, gpt)]
    val = Data.of(text.read_text()).val
    assert losses[:3] == pytest.approx([ngram_floor(val, n) for n in (1, 2, 3)], abs=1e-3)
    assert losses[3] == pytest.approx(float(progress[-1].split()[6]), abs=6e-4)
    assert re.fullmatch(r"GPT, 2 layers +1\d\d,\d{3} +\d\.\d{3} +0\.\d\d", gpt)
    assert sample.startswith(Data.of(text.read_text()).tokenizer.decode(val[:1]))


def test_the_command_line_takes_text_that_asks_nothing(text, capsys):
    text.write_text(markov_text(3000))
    training.main([f"--text={text}", *SMALL])
    assert re.search(r"GPT, 2 layers +[\d,]+ +\d\.\d{3} *\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--stepz=3"], 2, "unrecognized arguments: --stepz=3"),
        (["--steps=3.5"], 2, "argument --steps: invalid int value: '3.5'"),
        (["--config=huge"], 2, "argument --config: invalid choice: 'huge'"),
        (["--steps=0"], 1, "training: Recipe: steps = 0, expected an integer of at least 1."),
        (
            ["--precision=float23"],
            1,
            "training: There is no precision called 'float23'. Did you mean 'float32'?",
        ),
        (["--device=abacus"], 1, "training: --device abacus cannot be used. This machine has: cpu"),
        (["--device=cuda:99"], 1, "training: --device cuda:99 cannot be used. This machine has: cpu"),
        (["--seed=-1"], 1, "training: Recipe: seed = -1, expected an integer, 0 <= seed < 2**63."),
        ([f"--seed={2**63}"], 1, "training: Recipe: seed = 9223372036854775808, expected an integer"),
        (["--text=nowhere.txt"], 1, "training: load_text: there is no file"),
        (["--text=~nobody/war.txt"], 1, "training: load_text: there is no file"),
        (
            ["--checkpoint=no/such/run.pt"],
            1,
            "training: The checkpoint no/such/run.pt could not be written: No such",
        ),
        (["--checkpoint=."], 1, "training: There is no checkpoint file ."),
    ],
)
def test_what_does_not_work_is_said_in_one_line(text, capsys, arguments, status, message):
    with pytest.raises(SystemExit) as stopped:
        training.main([f"--text={text}", *SMALL, *arguments])
    shown = capsys.readouterr()
    assert shown.out == ""  # said before anything is trained
    said = shown.err.splitlines() if status == 2 else stopped.value.code.splitlines()
    assert message in said[-1]
    assert len(said) <= status
    assert stopped.value.code == 2 or status == 1  # a sentence is printed, and the status is 1


def test_a_short_text_and_a_foreign_checkpoint_are_told_from_the_command_line(text):
    with pytest.raises(SystemExit, match="is not a checkpoint of this course"):
        training.main([f"--text={text}", f"--checkpoint={text}", *SMALL])
    text.write_text("a few words")
    with pytest.raises(SystemExit, match="The training text has 9 tokens, too few for block_size = 128"):
        training.main([f"--text={text}", *SMALL])


def stop_after(step, process):
    """Press Ctrl-C when a command has printed this step or a later one; return its last step and its hint."""
    while int(re.match(r"step +(\d+) of 100000", process.stdout.readline())[1]) < step:
        pass
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    *_, stopped, hint, _ = rest.split("\n")
    return int(re.fullmatch(r"Stopped after step (\d+) of 100000.", stopped)[1]), hint


def test_ctrl_c_saves_and_the_same_command_goes_on(text, tmp_path, listening, start):
    path, whole = tmp_path / "run.pt", tmp_path / "whole.pt"
    command = [f"--text={text}", "--steps=100000", "--batch-size=2", "--evaluate-every=3", "--checkpoint"]
    first, hint = stop_after(3, start(*command, path))
    assert hint == f"The same command goes on from there, with {path}."
    assert read_checkpoint(path)["steps_done"] == len(read_checkpoint(path)["history"]["losses"]) == first
    second, _ = stop_after(first + 1, start(*command, path))
    stop_after(second, start(*command, whole))
    losses, without_a_stop = (read_checkpoint(file)["history"]["losses"] for file in (path, whole))
    assert len(losses) == second > first
    assert losses == without_a_stop[:second]


def test_ctrl_c_before_the_first_step_is_as_polite(text, monkeypatch):
    monkeypatch.setattr(training, "load_text", interrupt)
    with pytest.raises(SystemExit) as stopped:
        training.main([f"--text={text}"])
    assert stopped.value.code == 130


def test_a_finished_run_is_not_repeated(text, tmp_path, capsys):
    command = [f"--text={text}", *SMALL, f"--checkpoint={tmp_path / 'run.pt'}"]
    training.main(command)
    table = capsys.readouterr().out.partition("model")[2].partition("GPT")[2].split("\n")[0]
    training.main(command)
    again = capsys.readouterr().out
    assert "step" not in again
    assert table in again


def test_the_command_line_takes_the_size_of_the_model(text, capsys):
    training.main([f"--text={text}", *SMALL, "--config=shakespeare"])
    assert re.search(r"GPT, 4 layers +8\d\d,\d{3} ", capsys.readouterr().out)


@pytest.mark.parametrize(("presses", "saved"), [(1, 2), (2, 0)])
def test_the_command_line_resumes_to_the_same_result(
    listening, text, tmp_path, monkeypatch, capsys, presses, saved
):
    paths = [tmp_path / "whole.pt", tmp_path / "halves.pt"]
    command = [f"--text={text}", *SMALL]
    training.main([*command, f"--checkpoint={paths[0]}"])
    with monkeypatch.context() as patch:
        patch.setattr(training, "print_progress", lambda trainer: [press() for _ in range(presses)])
        with pytest.raises(SystemExit) as stopped:
            training.main([*command, f"--checkpoint={paths[1]}"])
    assert stopped.value.code == 130
    said = f"Stopped after step 2 of 4.\nThe same command goes on from there, with {paths[1]}.\n"
    assert capsys.readouterr().out.endswith(said) == (presses == 1)
    assert read_checkpoint(paths[1])["steps_done"] == saved
    training.main([*command, f"--checkpoint={paths[1]}"])
    whole, halves = map(read_checkpoint, paths)
    assert without_clock(History(**whole["history"])) == without_clock(History(**halves["history"]))
    assert all(torch.equal(whole["model"][name], halves["model"][name]) for name in whole["model"])


# Several processes


def test_two_processes_train_like_one(text, tmp_path, start):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m")
    pair = start(f"--text={text}", *SMALL, f"--checkpoint={tmp_path / 'pair.pt'}", launcher=launcher)
    training.main([f"--text={text}", *SMALL, f"--checkpoint={tmp_path / 'one.pt'}"])
    shown, errors = pair.communicate(timeout=120)
    assert pair.returncode == 0, errors
    assert shown.count("GPT, 2 layers") == 1
    one, two = (read_checkpoint(tmp_path / name) for name in ("one.pt", "pair.pt"))
    assert two["history"]["losses"] == pytest.approx(one["history"]["losses"], abs=1e-5)
    assert two["history"]["val_losses"] == pytest.approx(one["history"]["val_losses"], abs=1e-5)
    for name, weights in one["model"].items():
        torch.testing.assert_close(two["model"][name], weights, atol=1e-4, rtol=0)


@pytest.mark.parametrize("found", [0, 1])
def test_a_process_without_a_gpu_of_its_own_is_told_so(monkeypatch, found):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    with pytest.raises(SystemExit, match=rf"training: Process 1, .* machine has {found}\. Start no more"):
        training.main(["--device=cuda"])


@pytest.mark.parametrize(
    ("device", "joined"), [("cpu", ["gloo"]), ("cuda", ["cuda:1", "nccl"]), ("cuda:0", ["nccl"])]
)
@pytest.mark.parametrize("fails", [False, True])
def test_processes_of_torchrun_join_and_part(monkeypatch, device, joined, fails):
    calls = []
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", calls.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", calls.append)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: calls.append("wait"))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: calls.append("part"))
    options = argparse.Namespace(device=device)
    with contextlib.suppress(OSError), training.process_group(options):
        calls.append(f"train on {options.device}")
        if fails:
            raise OSError
    name = "cuda:1" if device == "cuda" else device
    assert calls == [*joined, f"train on {name}", *["wait"] * (not fails), "part"]


def test_a_process_looks_at_its_share_of_the_batch():
    model, seen = tiny(), []
    trainer = Trainer(model, DATA, RECIPE)
    trainer.rank, trainer.processes, trainer.mean = 1, 2, lambda value: value
    model.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    trainer.step()
    whole, _ = get_batch(DATA.train, 7, 4, torch.Generator().manual_seed(0))
    assert torch.equal(seen[0], whole[1::2])


def test_a_batch_that_cannot_be_shared_is_refused(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    with pytest.raises(ValueError, match=r"A batch of 4 cannot be shared by 3 processes.* that 3 divides"):
        Trainer(tiny(), DATA, RECIPE)


def test_two_processes_share_their_gradients_and_numbers(monkeypatch):
    shared = nn.Module()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda numbers: numbers.add_(3))
    monkeypatch.setattr(training, "DistributedDataParallel", {(model := tiny()): shared}.get)
    trainer = Trainer(model, DATA, RECIPE)
    assert trainer._forward is shared
    assert trainer.mean(1.0) == 2


@pytest.mark.parametrize(("rank", "order"), [("0", ["load", "wait"]), ("1", ["wait", "load"])])
@pytest.mark.parametrize("fails", [False, True])
def test_one_process_of_a_machine_downloads_and_the_others_wait(monkeypatch, rank, order, fails):
    calls = []

    def load(name):
        calls.append("load")
        if fails:
            raise OSError("no network")
        return name

    monkeypatch.setenv("LOCAL_RANK", rank)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: calls.append("wait"))
    monkeypatch.setattr(training, "load_text", load)
    if fails:
        with pytest.raises(OSError, match="no network"):
            training.shared_text("stories")
    else:
        assert training.shared_text("stories") == "stories"
    assert calls == order


def test_if_one_process_is_stopped_all_stop(monkeypatch):
    """The mean over all processes of "I was asked to stop" is what counts."""
    trainer = Trainer(tiny(), DATA, RECIPE)
    monkeypatch.setattr(trainer, "mean", lambda value: 0.5 if trainer.steps_done == 6 else 0.0)
    assert run(trainer, watch=lambda t: None).stopped
    assert trainer.steps_done == 6
