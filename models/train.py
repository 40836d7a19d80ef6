"""Trains headrace-tiny from scratch: `python -m models.train`, about twenty minutes on two cores."""

import argparse
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from models.evaluate import evaluate, write_evaluation
from models.questions import Question, load_questions
from models.samples import SYSTEM_PROMPTS, Sample, SampleMaker
from models.vocabulary import CONTEXT_TOKENS, DEFAULT_SYSTEM_PROMPT, train_tokenizer

MODEL_FOLDER = Path(__file__).parent / "headrace-tiny"
SEED = 20261201
THREADS = 2
BATCH_TOKENS = 2048
# Batches are cut from pools of samples sorted by length, so that little is padded.
POOL_BATCHES = 36
WARMUP_STEPS = 100
# First mostly drills, which teach to tell the questions apart; then mostly whole chats, as they will be asked.
DRILL_STEPS = 0.6
DRILL_RATE = 0.85
LATER_DRILL_RATE = 0.3
PEAK_LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples as tensors; decisions holds rows of (sample, place, number of the question)."""

    token_ids: torch.Tensor
    is_answer: torch.Tensor
    decisions: torch.Tensor


def main() -> None:
    """Trains, saves and measures the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--folder", type=Path, default=MODEL_FOLDER)
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(THREADS)
    chance = random.Random(SEED)
    questions = load_questions()
    tokenizer = train_tokenizer(corpus(questions))
    model = new_model(tokenizer)
    print(f"{len(questions)} questions, {len(tokenizer)} tokens, {model.num_parameters():,} parameters")
    started = time.monotonic()
    # Learns with the model which question it was and is thrown away: next tokens alone teach that too slowly.
    chooser = torch.nn.Linear(model.config.hidden_size, len(questions))
    maker = SampleMaker(questions, tokenizer, chance)
    data = batches(maker, tokenizer.pad_token_id, chance, round(arguments.steps * DRILL_STEPS))
    fit(model, chooser, data, arguments.steps)
    training_seconds = time.monotonic() - started
    # Half precision halves the folder; every reader converts it back without loss.
    model.half().save_pretrained(arguments.folder)
    # safetensors writes for the owner alone; a container reads the folder as another user.
    (arguments.folder / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(arguments.folder)
    print(f"trained for {training_seconds / 60:.1f} minutes")
    numbers = evaluate(arguments.folder, questions)
    write_evaluation(arguments.folder, {**numbers, "training_minutes": round(training_seconds / 60, 1)})


def corpus(questions: list[Question]) -> list[str]:
    """Gives the tokenizer its text; no held-out wording is among it."""
    texts = [DEFAULT_SYSTEM_PROMPT] * 20 + list(SYSTEM_PROMPTS)
    for question in questions:
        texts += [question.answer, *question.all_wordings]
        texts += [wording.lower() for wording in question.all_wordings]
    return texts


def new_model(tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    """Builds the untrained network."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=[tokenizer.eos_token_id],
        pad_token_id=tokenizer.pad_token_id,
        # It has one answer to a question; sampling could only mix two of them.
        do_sample=False,
    )
    return model


def batches(maker: SampleMaker, pad_id: int, chance: random.Random, drill_batches: int) -> Iterator[Batch]:
    """Yields batches of samples of similar length, without end; the first ones hold mostly drills."""
    samples: list[Sample] = []
    yielded = 0
    while True:
        drill_rate = DRILL_RATE if yielded < drill_batches else LATER_DRILL_RATE
        while sum(len(sample.token_ids) for sample in samples) < POOL_BATCHES * BATCH_TOKENS:
            samples += maker.epoch(drill_rate)
        samples.sort(key=lambda sample: len(sample.token_ids))
        pool: list[list[Sample]] = [[]]
        for sample in samples:
            if (len(pool[-1]) + 1) * len(sample.token_ids) > BATCH_TOKENS and pool[-1]:
                pool.append([])
            pool[-1].append(sample)
        chance.shuffle(pool)
        yield from (padded(batch, pad_id) for batch in pool)
        yielded += len(pool)
        samples = []


def padded(samples: list[Sample], pad_id: int) -> Batch:
    """Pads on the right, where causal attention never looks."""
    length = max(len(sample.token_ids) for sample in samples)
    token_ids = [sample.token_ids + [pad_id] * (length - len(sample.token_ids)) for sample in samples]
    is_answer = [sample.is_answer + [False] * (length - len(sample.is_answer)) for sample in samples]
    decisions = [(row, *decision) for row, sample in enumerate(samples) for decision in sample.decisions]
    return Batch(torch.tensor(token_ids), torch.tensor(is_answer), torch.tensor(decisions).reshape(-1, 3))


def fit(model: LlamaForCausalLM, chooser: torch.nn.Linear, data: Iterator[Batch], steps: int) -> None:
    """Runs the optimizer for a fixed number of steps."""
    parameters = [*model.parameters(), *chooser.parameters()]
    optimizers = new_optimizers(model, chooser)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(step, steps))
        for optimizer in optimizers
    ]
    columns = (TextColumn("loss {task.fields[loss]:.3f}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    model.train()
    with Progress(*columns) as progress:
        task = progress.add_task("train", total=steps, loss=float("nan"))
        for step in range(steps):
            loss = loss_of(model, chooser, next(data))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            for optimizer, schedule in zip(optimizers, schedules, strict=True):
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            progress.update(task, advance=1, loss=loss.item())
            if not progress.console.is_terminal and step % 50 == 0:
                progress.console.print(f"step {step} of {steps}, loss {loss.item():.3f}")
    model.eval()


def new_optimizers(model: LlamaForCausalLM, chooser: torch.nn.Linear) -> list[torch.optim.Optimizer]:
    """Builds Muon for the layers' matrices, AdamW for the rest: AdamW alone needs several times the steps."""
    matrices = [parameter for parameter in model.model.layers.parameters() if parameter.ndim == 2]
    others = [parameter for parameter in model.model.layers.parameters() if parameter.ndim != 2]
    others += [*model.model.embed_tokens.parameters(), *model.model.norm.parameters(), *chooser.parameters()]
    return [
        torch.optim.Muon(matrices, PEAK_LEARNING_RATE, WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, PEAK_LEARNING_RATE, (0.9, 0.98), weight_decay=WEIGHT_DECAY),
    ]


def learning_rate_factor(step: int, steps: int) -> float:
    """Warms up, then follows half a cosine down to a fiftieth."""
    if step < WARMUP_STEPS:
        return (step + 1) / WARMUP_STEPS
    return 0.02 + 0.49 * (1 + math.cos(math.pi * (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)))


def loss_of(model: LlamaForCausalLM, chooser: torch.nn.Linear, batch: Batch) -> torch.Tensor:
    """Adds the cross-entropy of the answers' tokens, with logits only where they count, and that of the choices."""
    hidden = model.model(batch.token_ids[:, :-1], use_cache=False).last_hidden_state
    counts = batch.is_answer[:, 1:]
    token_loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[counts]), batch.token_ids[:, 1:][counts])
    rows, places, questions = batch.decisions.T
    return token_loss + torch.nn.functional.cross_entropy(chooser(hidden[rows, places]), questions)


if __name__ == "__main__":
    main()
