"""The training loop: what a step does, what is measured, and how it is stopped."""

import signal
import threading
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from training.small import DATA, RECIPE, equal, finish, markov_text, press, tiny, without_clock

from attention_course.gpt import GPT, BigramLanguageModel
from attention_course.text import Corpus, conditional_entropy, get_batch
from attention_course.training import Recipe, Trainer, evaluate, parameter_groups, run, train

# One step


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_the_gradient_is_clipped_when_it_is_too_long(clip):
    model = tiny()
    Trainer(model, DATA, replace(RECIPE, clip=clip)).step()
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))
    assert norm == pytest.approx(clip, rel=1e-2) if clip < 1 else 0.1 < norm < 10


@pytest.mark.parametrize("schedule", [None, lambda step: 1e-2 / (step + 1)])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (3.0, 0.5)])
def test_a_step_is_one_of_adamw_on_the_batches_of_the_generator(scales, schedule):
    """A group's learning rate is that of the schedule or the recipe, times its scale; matrices decay."""
    model, other = tiny(), tiny()

    def adamw(model):
        groups = parameter_groups(model, 0.1)
        scaled = [{**group, "lr_scale": scale} for group, scale in zip(groups, scales, strict=True)]
        return torch.optim.AdamW(scaled, betas=(0.9, 0.95), fused=True)

    own = None if scales == (1.0, 1.0) else adamw(model)
    trainer, optimizer = Trainer(model, DATA, replace(RECIPE, clip=1e6), own, schedule), adamw(other)
    generator = torch.Generator().manual_seed(0)
    for step in range(5):
        for group in optimizer.param_groups:
            group["lr"] = group["lr_scale"] * (schedule or RECIPE.learning_rate_at)(step)
        x, y = get_batch(DATA.train, 7, 4, generator)
        torch.randint(2**31, (), generator=generator)
        loss = F.cross_entropy(other(x).transpose(1, 2), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert trainer.step() == pytest.approx(loss.item(), abs=1e-5)
    for parameter, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, atol=1e-5, rtol=0)


def test_matrices_decay_and_the_rest_does_not():
    matrices, rest = parameter_groups(tiny(bias=True), 0.3)
    assert (matrices["weight_decay"], rest["weight_decay"]) == (0.3, 0.0)
    assert {p.dim() for p in matrices["params"]} == {2}
    assert {p.dim() for p in rest["params"]} == {1}
    assert len(parameter_groups(BigramLanguageModel(3), 0.3)) == 1


# A whole training


def test_a_bigram_model_comes_down_to_the_floor_of_a_text_without_longer_memory():
    data = Corpus.of(markov_text(30_000))
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
        before = torch.get_rng_state()
        runs.append((train(model, DATA, replace(RECIPE, seed=seed), callback=lambda t: None), model))
        assert torch.equal(torch.get_rng_state(), before)
    (first, model), (again, same), (other, changed) = runs
    assert first.losses == again.losses
    assert equal(model, same)
    assert first.losses != other.losses
    assert not equal(model, changed)


def test_each_step_has_its_own_dropout():
    """The same batch each time, and no update: only dropout can change the loss."""
    data = replace(DATA, train=DATA.train[:8])
    trainer = Trainer(tiny(dropout=0.5), data, replace(RECIPE, learning_rate=1e-12))
    assert len({trainer.step() for _ in range(4)}) == 4


def test_the_history_is_complete():
    """Some blocks are measured during the training, and the whole text at its end."""
    model, some = tiny(), []
    history = train(
        model,
        DATA,
        replace(RECIPE, evaluate_blocks=2),
        callback=lambda t: some.append(evaluate(model, DATA.val, "float32", 2)),
    )
    assert len(history.losses) == 10
    assert history.val_steps == [4, 8, 10]
    assert history.val_losses == [some[3], some[7], evaluate(model, DATA.val, "float32")]
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


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_recipe_sets_the_precision_of_training_and_evaluation(precision):
    model, seen = tiny(), []
    model.transformer.h[0].attn.c_attn.register_forward_hook(lambda *given: seen.append(given[2].dtype))
    trainer = Trainer(model, DATA, replace(RECIPE, precision=precision))
    for measure in (trainer.step, trainer.evaluate):
        seen.clear()
        measure()
        assert set(seen) == {getattr(torch, precision)}


# Divergence


@pytest.mark.parametrize(
    ("spoil", "steps", "what"),
    [
        (lambda m: m.register_forward_hook(lambda *given: given[2] * torch.nan), 1, "loss is nan"),
        (lambda m: m.lm_head.weight.register_hook(lambda g: g * torch.inf), 1, "norm of the gradient is inf"),
        (
            lambda m: m.register_forward_hook(lambda m, ids, logits: None if m.training else logits / 0),
            4,
            "validation loss is (nan|inf)",
        ),
    ],
)
def test_what_is_not_finite_stops_the_training_before_the_update(spoil, steps, what):
    trainer, good = Trainer(tiny(), DATA, RECIPE), Trainer(tiny(), DATA, RECIPE)
    trainer.step()
    spoil(trainer.model)
    with pytest.raises(FloatingPointError, match=f"After step {steps} of 10 the {what}: training has div"):
        finish(trainer)
    run(good, callback=lambda t: t.steps_done == steps)
    assert equal(trainer.model, good.model)
    history = trainer.history
    assert history.losses == good.history.losses
    assert history.val_losses == history.val_steps == history.val_seconds == []
    assert history.stopped
    assert not trainer.model.training


TOO_LARGE = "A batch of 4 sequences of 7 tokens does not fit in memory"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), MemoryError, TOO_LARGE),
        (RuntimeError("can't allocate memory: you tried to allocate 9 bytes."), MemoryError, TOO_LARGE),
        (MemoryError(), MemoryError, TOO_LARGE),
        (RuntimeError("shapes do not fit in memory"), RuntimeError, "shapes do not fit"),
    ],
)
def test_too_little_memory_is_reported(error, kind, message):
    def fail(*given):
        raise error

    model = tiny()
    model.register_forward_pre_hook(fail)
    with pytest.raises(kind, match=message):
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
    assert finish(trainer) is history
    whole = Trainer(tiny(dropout=0.3), DATA, RECIPE)
    assert without_clock(history) == without_clock(finish(whole))
    assert equal(trainer.model, whole.model)


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
    finish(trainer)
    assert without_clock(history) == without_clock(finish(Trainer(tiny(dropout=0.3), DATA, RECIPE)))


def test_a_second_interrupt_does_not_wait(listening):
    model = Interrupted(tiny().config)
    model.presses = 2
    trainer = Trainer(model, DATA, RECIPE)
    with pytest.raises(KeyboardInterrupt):
        finish(trainer)
    assert trainer.history.stopped
    assert not model.training
    assert trainer.steps_done == 4
    assert signal.getsignal(signal.SIGINT) is listening


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
    finish(whole)
    model = LongText(tiny().config)
    model.load_state_dict(tiny().state_dict())
    model.press_now = True
    trainer = Trainer(model, LONG, recipe)
    history = finish(trainer)
    assert model.batches == 1
    assert history.stopped
    assert trainer.evaluation_due
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
        assert not late.evaluation_due
        assert without_clock(late.history) == without_clock(whole.history)


def test_an_interrupt_of_the_last_step_comes_too_late_to_stop_the_run(listening):
    model = Interrupted(tiny().config)
    trainer = Trainer(model, DATA, replace(RECIPE, steps=5))
    assert not finish(trainer).stopped
    assert trainer.done


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


def test_a_batch_that_cannot_be_shared_is_refused(monkeypatch):
    for name, value in {"is_initialized": True, "get_rank": 0, "get_world_size": 3}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    with pytest.raises(ValueError, match=r"A batch of 4 cannot be split between 3 processes\. .* 3 divides"):
        Trainer(tiny(), DATA, RECIPE)


def test_if_one_process_is_stopped_all_stop(monkeypatch):
    """The mean over all processes of "I was asked to stop" is what counts."""
    trainer = Trainer(tiny(), DATA, RECIPE)
    monkeypatch.setattr(trainer, "mean", lambda value: 0.5 if trainer.steps_done == 6 else 0.0)
    assert finish(trainer).stopped
    assert trainer.steps_done == 6
