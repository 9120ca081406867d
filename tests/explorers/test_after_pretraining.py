"""The explorer of rewards: what it draws and says is what was measured, of the questions that were asked."""

import re

import pytest

from attention_course.explorers import explore
from attention_course.rungs.after_pretraining import explorer as rewarding


def runs(reward, leash):
    name = f"{rewarding.REWARDS[reward]}, {leash}"
    return [seed["rewarded"][name] for seed in rewarding.measured()["seeds"]]


def mean(every, of, at):
    return sum(run[of][at] for run in every) / len(every)


def says(out, reward, leash, steps):
    every, at = runs(reward, leash), max(steps - 1, 0)
    trues = [run["right"][at] for run in every]
    yield f"{min(trues):.2f} to {max(trues):.2f} in the {len(every)} models"
    for of, verb in (("reward", "the reward"), ("right", "true answers")):
        before, after = mean(every, of, 0), mean(every, of, at)
        if steps and abs(after - before) > 0.051:
            yield f"{verb} {'rises' if after > before else 'falls'} ("
        elif steps and abs(after - before) < 0.049:
            yield f"{verb} hardly moves ("


@pytest.mark.parametrize("reward", rewarding.REWARDS)
@pytest.mark.parametrize("leash", rewarding.LEASHES)
def test_what_is_stored_is_of_every_step_and_drawn_up_to_the_chosen_one(reward, leash):
    every = runs(reward, leash)
    for run in every:
        assert {len(run[of]) for of in ("reward", "right", "kl")} == {rewarding.STEPS}
        assert len(run["answers"]) == rewarding.STEPS // rewarding.EVERY + 1
        assert run["kl"][0] == 0
    explorer = explore("after_pretraining")
    explorer.controls["reward"].value, explorer.controls["leash"].value = reward, leash
    for steps in (0, 5, 25, 40):
        explorer.controls["steps"].value = steps
        lines, sheet = explorer.figure.panels
        for curve, of in (("true answers", "right"), ("reward", "reward")):
            x, y = lines.points(curve)
            assert x.tolist() == list(range(1, max(steps, 1) + 1))
            assert y.tolist() == pytest.approx([mean(every, of, at) for at in range(len(x))])
        caption = explorer.figure.caption
        nats = re.search(r"an answer is (\S+) nats", caption)
        assert bool(nats) == (steps > 0)
        if nats:
            assert float(nats[1]) == pytest.approx(mean(every, "kl", steps - 1), abs=0.0051)
        rows = [row.rstrip() for row in sheet.rows()]
        answers = every[0]["answers"][steps // rewarding.EVERY]
        for question, answer, fact, line in zip(
            rewarding.SHOWN, answers, rows[::2], rows[1::2], strict=True
        ):
            sign = "✓" if answer == question.answer else "✗"
            assert f"{fact} {line}" == f"{question.prompt}{answer} {sign}".replace("\n", "↵")
    marked = "".join(t for t, shade in zip(sheet.text, sheet.values, strict=True) if shade)
    assert marked == "".join(answer[1:] for answer in answers).replace("\n", "↵")


def test_a_name_is_cheap_and_a_leash_holds():
    """What the rung says of the rewards, of every base model."""
