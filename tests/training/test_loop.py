"""The training loop: what a step does, what is measured, and how it is stopped."""

import signal
import threading
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from training.small import (
    DATA,
    RECIPE,
    equal,
    interrupt,
    markov_text,
    press,
    tiny,
    whole_run,
    without_clock,
)

from attention_course.gpt import GPT, BigramLanguageModel
from attention_course.text import Data, conditional_entropy, get_batch
from attention_course.training import (
    Recipe,
    Trainer,
    evaluate,
    loop,
    parameter_groups,
    run,
    train,
)

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
        loss = F.cross_entropy(other(x).transpose(1, 2), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert trainer.step() == pytest.approx(loss.item(), abs=1e-5)


def test_each_step_has_the_learning_rate_of_the_recipe():
    trainer, rates = Trainer(tiny(), DATA, RECIPE), []
    run(trainer, callback=lambda t: rates.append({group["lr"] for group in t.optimizer.param_groups}))
    assert rates == [{RECIPE.learning_rate_at(step)} for step in range(10)]


def test_a_schedule_replaces_the_learning_rate_of_the_recipe():
    trainer, rates = Trainer(tiny(), DATA, RECIPE, schedule=lambda step: 1 / (step + 1)), []
    run(trainer, callback=lambda t: rates.extend(group["lr"] for group in t.optimizer.param_groups))
    assert rates == [1 / (step + 1) for step in range(10) for _ in trainer.optimizer.param_groups]


def test_a_group_scales_the_learning_rate_of_the_schedule():
    model = tiny(bias=True)
    matrices, rest = parameter_groups(model, 0.0)
    optimizer = torch.optim.AdamW([matrices | {"lr_scale": 3.0}, rest])
    trainer, rates = Trainer(model, DATA, RECIPE, optimizer), []
    run(trainer, callback=lambda t: rates.append([group["lr"] for group in t.optimizer.param_groups]))
    assert rates == [[3 * rate, rate] for rate in map(RECIPE.learning_rate_at, range(10))]


def test_an_optimizer_replaces_adamw():
    model, other = tiny(), tiny()
    trainer = Trainer(model, DATA, replace(RECIPE, clip=1e6), torch.optim.SGD(model.parameters(), lr=9.0))
    x, y = get_batch(DATA.train, 7, 4, torch.Generator().manual_seed(0))
    F.cross_entropy(other(x).flatten(0, 1), y.flatten()).backward()
    trainer.step()
    for parameter, start in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter, start - RECIPE.learning_rate_at(0) * start.grad)


def test_matrices_decay_and_the_rest_does_not():
    matrices, rest = parameter_groups(tiny(bias=True), 0.3)
    assert (matrices["weight_decay"], rest["weight_decay"]) == (0.3, 0.0)
    assert {p.dim() for p in matrices["params"]} == {2}
    assert {p.dim() for p in rest["params"]} == {1}
    assert len(parameter_groups(BigramLanguageModel(3), 0.3)) == 1


def test_a_model_without_a_block_size_is_told_so():
    with pytest.raises(TypeError, match="Linear has block_size = None"):
        Trainer(nn.Linear(2, 2), DATA, RECIPE)


# A whole training


def test_a_bigram_model_comes_down_to_the_floor_of_a_text_without_longer_memory():
    data = Data.of(markov_text(30_000))
    torch.manual_seed(0)
    model = BigramLanguageModel(4)
    recipe = Recipe(steps=150, batch_size=16, learning_rate=0.1, warmup=5, weight_decay=0.0)
    before = evaluate(model, data.val)
    history = train(model, data, recipe, callback=lambda trainer: None)
    floor = conditional_entropy(data.val, 2)
    assert before > floor + 0.5
    assert floor - 0.005 < history.val_losses[-1] < floor + 0.02


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_training_is_repeated_by_its_seed(dropout):
    runs = []
    for noise, seed in ((1, 5), (2, 5), (1, 6)):
        model = tiny(dropout=dropout)
        torch.manual_seed(noise)
        runs.append((train(model, DATA, replace(RECIPE, seed=seed), callback=lambda t: None), model))
    (first, model), (again, same), (other, changed) = runs
    assert first.losses == again.losses
    assert equal(model, same)
    assert first.losses != other.losses
    assert not equal(model, changed)


def test_a_training_leaves_the_random_numbers_of_others_alone():
    model = tiny(dropout=0.3)
    before = torch.get_rng_state()
    train(model, DATA, RECIPE, callback=lambda trainer: None)
    assert torch.equal(torch.get_rng_state(), before)


def test_each_step_has_its_own_dropout():
    """The same batch each time, and no update: only dropout can change the loss."""
    data = replace(DATA, train=DATA.train[:8])
    trainer = Trainer(tiny(dropout=0.5), data, replace(RECIPE, learning_rate=1e-12))
    assert len({trainer.step() for _ in range(4)}) == 4


def test_the_history_is_complete():
    model = tiny()
    history = train(model, DATA, RECIPE, callback=lambda trainer: None)
    assert len(history.losses) == 10
    assert history.val_steps == [4, 8, 10]
    assert len(history.val_losses) == 3
    assert history.val_losses[-1] == evaluate(model, DATA.val, "float32")
    assert 0 < history.val_seconds[0] < history.val_seconds[1] < history.val_seconds[2]
    assert not history.stopped


def test_the_model_is_in_training_mode_while_it_trains_and_in_eval_mode_after():
    model, modes = tiny().eval(), set()
    train(model, DATA, RECIPE, callback=lambda trainer: modes.add(trainer.model.training))
    assert modes == {True}
    assert not model.training


def test_the_bar_counts_every_step(capsys):
    train(tiny(), DATA, RECIPE, name="my model")
    shown = capsys.readouterr().err
    assert "my model" in shown
    assert "10 of 10" in shown
    trainer = Trainer(tiny(), DATA, RECIPE)
    run(trainer, callback=lambda trainer: trainer.steps_done == 4)
    assert capsys.readouterr().err == "", "a callback replaces the progress bar"
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
    monkeypatch.setattr(loop, "tqdm", partial(loop.tqdm, mininterval=0))
    train(tiny(), DATA, replace(RECIPE, steps=300))
    assert 100 <= capsys.readouterr().err.count("of 300") <= 103


@pytest.mark.parametrize(("kind", "length"), [("training", 7), ("validation", 7), ("validation", 0)])
def test_a_text_that_is_too_short_is_refused_at_once(kind, length):
    short = replace(DATA, **{kind[: 5 if kind == "training" else 3]: DATA.val[:length]})
    with pytest.raises(ValueError, match=rf"The {kind} text has {length} tokens.* at least 8 are needed"):
        Trainer(tiny(), short, RECIPE)


def test_the_shortest_texts_will_do():
    data = Data(DATA.train[:8], DATA.val[:8], DATA.tokenizer)
    assert len(train(tiny(), data, RECIPE, callback=lambda trainer: None).val_losses) == 3


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
        return self.table(ids)


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
    [({"amx_bf16": True}, torch.bfloat16), ({"avx512_bf16": True}, torch.bfloat16), ({}, torch.float32)],
)
def test_auto_is_bfloat16_where_there_are_circuits_for_it(monkeypatch, found, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    model = Spy()
    Trainer(model, DATA, replace(RECIPE, precision="auto")).step()
    assert model.seen == {expected}


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
    train(tiny(), DATA, replace(RECIPE, steps=1), callback=lambda trainer: None)
    assert chosen == expected


# Measuring while training


def test_a_training_looks_at_some_blocks_and_at_its_end_at_all(monkeypatch):
    looked, usual = [], loop.evaluate
    monkeypatch.setattr(
        loop, "evaluate", lambda *given: looked.append((given[3], usual(*given))) or looked[-1][1]
    )
    model = tiny()
    history = train(model, DATA, replace(RECIPE, evaluate_blocks=2), callback=lambda trainer: None)
    assert [blocks for blocks, _ in looked] == [2, 2, None]
    assert history.val_losses == [loss for _, loss in looked]
    assert history.val_losses[-1] == evaluate(model, DATA.val, "float32")


# Divergence


def test_a_loss_that_is_not_finite_stops_the_training_before_the_update():
    model = tiny()
    trainer = Trainer(model, DATA, RECIPE)
    trainer.step()
    good = tiny()
    good.load_state_dict(model.state_dict())
    model.register_forward_hook(lambda module, given, logits: logits * float("nan"))
    with pytest.raises(FloatingPointError, match=r"After step 1 of 10 the loss is nan: .* rate of 0.0067\. "):
        run(trainer, callback=lambda t: None)
    assert equal(model, good)
    assert trainer.steps_done == len(trainer.history.losses) == 1
    assert trainer.history.stopped
    assert not model.training


def test_a_gradient_that_is_not_finite_stops_the_training_before_the_update():
    model = tiny()
    model.lm_head.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(FloatingPointError, match=r"After step 0 of 10 the norm of the gradient is inf"):
        train(model, DATA, RECIPE, callback=lambda t: None)
    assert equal(model, tiny())


def test_a_validation_loss_that_is_not_finite_stops_the_training_and_is_not_noted():
    model = tiny()
    model.register_forward_hook(lambda module, given, logits: None if module.training else logits / 0)
    trainer = Trainer(model, DATA, RECIPE)
    with pytest.raises(FloatingPointError, match=r"After step 4 of 10 the validation loss is (nan|inf)"):
        run(trainer, callback=lambda t: None)
    assert trainer.history.val_losses == trainer.history.val_steps == trainer.history.val_seconds == []


def test_a_training_that_really_diverges_is_stopped():
    with pytest.raises(FloatingPointError, match=r"training has diverged, at a learning rate of \S+e\+\d+"):
        train(tiny(), DATA, replace(RECIPE, learning_rate=1e36, warmup=0), callback=lambda t: None)


def test_if_the_loss_of_one_process_is_not_finite_all_stop(monkeypatch):
    trainer = Trainer(tiny(), DATA, RECIPE)
    monkeypatch.setattr(trainer, "mean", lambda value: float("nan"))
    with pytest.raises(FloatingPointError):
        trainer.step()
    assert equal(trainer.model, tiny())


# Bad input


def test_a_text_that_holds_no_ids_is_refused():
    for name, wrong in (("train", DATA.train.float()), ("val", DATA.val[None])):
        with pytest.raises(TypeError, match=r"The (training|validation) text: ids is torch|Type-check error"):
            Trainer(tiny(), replace(DATA, **{name: wrong}), RECIPE)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        MemoryError(),
    ],
)
def test_too_little_memory_is_said(error):
    def fail(*given):
        raise error

    model = tiny()
    model.register_forward_pre_hook(fail)
    with pytest.raises(MemoryError, match="A batch of 4 sequences of 7 tokens does not fit in memory"):
        train(model, DATA, RECIPE)


def test_memory_that_is_not_there_is_never_touched():
    """With this batch, the places of its texts alone would fill 17 GB before they fail."""
    model = tiny()
    with pytest.raises(MemoryError, match="A batch of 2147483647 sequences"):
        train(model, DATA, replace(RECIPE, batch_size=2**31 - 1))
    trainer, asked = Trainer(model, DATA, RECIPE), []
    trainer.processes = 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty", lambda *sizes, device: asked.append((sizes, device)))
        trainer.check_memory()
    assert asked == [((2, 14, DATA.tokenizer.vocab_size), torch.device("cpu"))]


def test_another_error_of_a_model_is_not_taken_for_too_little_memory():
    def fail(*given):
        raise RuntimeError("shapes do not fit in memory")

    model = tiny()
    model.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        train(model, DATA, RECIPE)


# Stopping


@pytest.mark.parametrize("stop", [lambda trainer: True, press])
def test_watch_stops_after_its_step_and_the_training_can_go_on(listening, stop):
    trainer = Trainer(tiny(dropout=0.3), DATA, RECIPE)
    history = run(trainer, callback=lambda t: stop(t) if t.steps_done == 3 else False)
    assert history.stopped
    assert trainer.steps_done == len(history.losses) == 3
    assert not trainer.model.training
    assert not equal(trainer.model, tiny())
    assert run(trainer, callback=lambda t: None) is history
    expected = whole_run()
    assert without_clock(history) == without_clock(expected.history)
    assert equal(trainer.model, expected.model)


class Interrupted(GPT):
    """Somebody presses the kernel's stop button so often while it computes its fifth batch."""

    presses, calls = 1, 0

    def forward(self, ids):
        self.calls += self.training
        if self.training and self.calls == 5:
            for _ in range(self.presses):
                press()
        return super().forward(ids)


def test_an_interrupt_waits_for_the_end_of_the_step(listening):
    model = Interrupted(tiny(dropout=0.3).config)
    model.load_state_dict(tiny().state_dict())
    trainer = Trainer(model, DATA, RECIPE)
    seen = []
    history = run(trainer, callback=lambda t: seen.append(t.history.stopped))
    assert history.stopped
    assert seen == [False, False, False, False, True]
    assert trainer.steps_done == 5
    assert signal.getsignal(signal.SIGINT) is listening
    run(trainer, callback=lambda t: None)
    assert without_clock(history) == without_clock(whole_run().history)


def test_a_second_interrupt_does_not_wait(listening):
    model = Interrupted(tiny().config)
    model.presses = 2
    trainer = Trainer(model, DATA, RECIPE)
    with pytest.raises(KeyboardInterrupt):
        run(trainer, callback=lambda t: None)
    assert trainer.history.stopped
    assert not model.training
    assert trainer.steps_done == 4
    assert signal.getsignal(signal.SIGINT) is listening


def test_an_evaluation_that_is_interrupted_leaves_no_half_entry(monkeypatch):
    trainer = Trainer(tiny(), DATA, RECIPE)
    monkeypatch.setattr(trainer, "evaluate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(trainer, callback=lambda t: None)
    history = trainer.history
    assert len(history.losses) == trainer.steps_done == RECIPE.evaluate_every
    assert history.val_steps == history.val_losses == history.val_seconds == []


class LongText(GPT):
    """Somebody presses the stop button while it computes the first batch of an evaluation."""

    press_now, batches = False, 0

    def forward(self, ids):
        if not self.training:
            self.batches += 1
            if self.press_now:
                press()
                self.press_now = False
        return super().forward(ids)


LONG = replace(DATA, val=DATA.train[: 7 * 64 * 3 + 1])  # three batches


@pytest.mark.parametrize("steps", [4, 6])
def test_an_interrupt_ends_an_evaluation_and_it_is_made_up_for_later(listening, tmp_path, steps):
    recipe = replace(RECIPE, steps=steps)
    whole = Trainer(tiny(), LONG, recipe)
    run(whole, callback=lambda t: None)
    model = LongText(tiny().config)
    model.load_state_dict(tiny().state_dict())
    model.press_now = True
    trainer = Trainer(model, LONG, recipe)
    history = run(trainer, callback=lambda t: None)
    assert model.batches == 1
    assert history.stopped
    assert trainer.due
    assert trainer.steps_done == len(history.losses) == 4
    assert history.val_steps == history.val_losses == history.val_seconds == []
    assert not trainer.interrupted
    assert trainer.evaluate() == evaluate(model, LONG.val, "float32")  # later nobody is in the way
    trainer.save(tmp_path / "run.pt")
    again = Trainer(LongText(tiny(seed=4).config), LONG, recipe)
    again.load(tmp_path / "run.pt")
    for late in (trainer, again):
        assert not run(late, callback=lambda t: None).stopped
        assert late.done
        assert not late.due
        assert without_clock(late.history) == without_clock(whole.history)


def test_an_evaluation_of_one_batch_is_not_worth_an_interrupt(listening):
    model = LongText(tiny().config)
    model.press_now = True
    history = train(model, DATA, RECIPE, callback=lambda t: None)
    assert history.stopped
    assert history.val_steps == [4]


def test_an_interrupt_of_the_last_step_comes_too_late_to_stop_the_run(listening):
    model = Interrupted(tiny().config)
    trainer = Trainer(model, DATA, replace(RECIPE, steps=5))
    assert not run(trainer, callback=lambda t: None).stopped
    assert trainer.done


def test_after_a_training_interrupts_do_what_they_did_before(listening):
    train(tiny(), DATA, RECIPE, callback=lambda trainer: None)
    assert signal.getsignal(signal.SIGINT) is listening


def test_where_interrupts_are_ignored_they_stay_so(listening):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    model = Interrupted(tiny().config)
    assert not train(model, DATA, RECIPE, callback=lambda trainer: None).stopped
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_training_runs_in_any_thread(listening):
    histories = []
    thread = threading.Thread(target=lambda: histories.append(train(tiny(), DATA, RECIPE)))
    thread.start()
    thread.join()
    assert len(histories[0].losses) == 10


# Several processes


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
    with pytest.raises(
        ValueError, match=r"A batch of 4 cannot be split between 3 processes.* that 3 divides"
    ):
        Trainer(tiny(), DATA, RECIPE)


def test_two_processes_share_their_gradients_and_numbers(monkeypatch):
    shared = nn.Module()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda numbers: numbers.add_(3))
    monkeypatch.setattr(loop, "DistributedDataParallel", {(model := tiny()): shared}.get)
    trainer = Trainer(model, DATA, RECIPE)
    assert trainer._forward is shared
    assert trainer.mean(1.0) == 2


def test_if_one_process_is_stopped_all_stop(monkeypatch):
    """The mean over all processes of "I was asked to stop" is what counts."""
    trainer = Trainer(tiny(), DATA, RECIPE)
    monkeypatch.setattr(trainer, "mean", lambda value: 0.5 if trainer.steps_done == 6 else 0.0)
    assert run(trainer, callback=lambda t: None).stopped
    assert trainer.steps_done == 6


def test_an_optimizer_of_another_model_is_refused():
    model, other = tiny(), tiny()
    Trainer(model, DATA, RECIPE, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="parameters that are not the model's"):
        Trainer(model, DATA, RECIPE, optimizer=torch.optim.SGD(other.parameters(), lr=0.1))
