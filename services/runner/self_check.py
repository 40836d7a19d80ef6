"""Proves at start that this model computes the same through the pool as transformers does without it.

An architecture may keep state elsewhere, or read an argument that nobody passes. It is better to refuse it here, in a
second, than to serve wrong tokens.
"""

import random

import torch
import transformers

from services.common.model_folder import ModelFolderError
from services.runner.batch_inputs import build_batch
from services.runner.engine import compute_logits
from services.runner.kv_pool import KvPool
from services.runner.paged_attention import ATTENTION_NAME
from services.runner.sequence import SlotTable
from services.runner.step import NewSequence, Sampling, SequenceWork

# Largest error relative to the scores' own size. Half precision differs by rounding, a wrong mask by far more.
_TOLERANCES = {torch.float32: 2e-4, torch.bfloat16: 0.1, torch.float16: 0.05}


def check_model(module: transformers.PreTrainedModel, pool: KvPool, vocabulary_size: int) -> None:
    """Computes two sequences in chunks and together; raises ModelFolderError if their scores are not the right ones."""
    size = pool.block_tokens
    generator = random.Random(0)  # noqa: S311 - any tokens do
    lengths = (2 * size + 3, 5)
    sequences = [tuple(generator.randrange(vocabulary_size) for _ in range(length)) for length in lengths]
    try:
        expected = torch.stack([_reference(module, tokens) for tokens in sequences])
        computed = _through_pool(module, pool, sequences)
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
        raise ModelFolderError(f"{type(module).__name__} cannot compute two short sequences: {error}") from error
    if not torch.isfinite(expected).all():
        raise ModelFolderError(
            f"{type(module).__name__} computes scores that are not finite numbers; its weights are bad"
        )
    difference = float((computed - expected).norm() / expected.norm())
    if not difference <= _TOLERANCES[pool.dtype]:
        raise ModelFolderError(
            f"{type(module).__name__} computes other scores with a paged KV cache than without (relative error "
            f"{difference:.2g}); this architecture is not supported"
        )


@torch.inference_mode()
def _reference(module: transformers.PreTrainedModel, tokens: tuple[int, ...]) -> torch.Tensor:
    module.set_attn_implementation("eager")
    try:
        ids = torch.tensor([tokens], device=module.device)
        logits: torch.Tensor = module(input_ids=ids, use_cache=False, logits_to_keep=1).logits
    finally:
        module.set_attn_implementation(ATTENTION_NAME)
    return logits[0, -1].float()


def _through_pool(module: transformers.PreTrainedModel, pool: KvPool, sequences: list[tuple[int, ...]]) -> torch.Tensor:
    slots = SlotTable(len(sequences), pool.block_count, pool.block_tokens, pool.block_count * pool.block_tokens)
    free = iter(range(pool.block_count))
    for slot, tokens in enumerate(sequences):
        blocks = tuple(next(free) for _ in range(-(-len(tokens) // pool.block_tokens)))
        slots.introduce(NewSequence(slot, f"check-{slot}", tokens, len(tokens), 0, blocks, Sampling()))
    long, short = (len(tokens) for tokens in sequences)
    first = pool.block_tokens + 1
    steps = [(first, short - 1), (long - first - 1, 0), (1, 1)]
    logits = torch.empty(0)
    for step in steps:
        work = tuple(SequenceWork(slot, tokens) for slot, tokens in enumerate(step) if tokens)
        batch = build_batch(work, slots)
        logits = compute_logits(module, pool, batch, slots.block_ids)
    # The row has the longer sequence first, as the expectation has.
    return logits
