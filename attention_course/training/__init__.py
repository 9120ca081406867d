"""Training, in a notebook, from the command line, or data-parallel with torchrun.

    python -m attention_course.training --text stories
    python -m attention_course.training --text tiny-shakespeare --config shakespeare --checkpoint run.pt
    torchrun --nproc-per-node=2 -m attention_course.training --text stories

The same command resumes a run that was stopped from its checkpoint.
"""

from attention_course.training.checkpoint import load_model, read_checkpoint
from attention_course.training.loop import Callback, Trainer, run, train
from attention_course.training.loss import evaluate
from attention_course.training.recipe import MODEL_CONFIGS, RECIPES, History, Recipe, parameter_groups

__all__ = [
    "MODEL_CONFIGS",
    "RECIPES",
    "Callback",
    "History",
    "Recipe",
    "Trainer",
    "evaluate",
    "load_model",
    "parameter_groups",
    "read_checkpoint",
    "run",
    "train",
]
