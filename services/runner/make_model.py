"""Writes a model folder with random weights: for benchmarks of a shape, and for tests. Not a model that can talk."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

_SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_TINY: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    # Large weights: the likeliest tokens of a random model then lie far apart, and greedy output is stable.
    "initializer_range": 0.2,
}

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-135m": (
        "llama",
        {
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
        },
    ),
    "tiny-llama": ("llama", {**_TINY, "tie_word_embeddings": True}),
    "tiny-qwen2": ("qwen2", _TINY),
    "tiny-qwen3": ("qwen3", {**_TINY, "head_dim": 32}),
    "tiny-mistral": ("mistral", {**_TINY, "sliding_window": 24, "head_dim": 16}),
    "tiny-gemma2": ("gemma2", {**_TINY, "head_dim": 32, "sliding_window": 24, "query_pre_attn_scalar": 20}),
    "tiny-gpt-neox": ("gpt_neox", {**_TINY, "rotary_pct": 0.25}),
}


def make_model(shape: str, folder: Path, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Path:
    """Writes weights, configuration and a byte-level tokenizer; returns the folder."""
    model_type, settings = SHAPES[shape]
    end, *_ = _special_ids(settings["vocab_size"])
    config = transformers.AutoConfig.for_model(
        model_type, **settings, bos_token_id=end, eos_token_id=end, pad_token_id=end
    )
    torch.manual_seed(seed)
    auto_model: Any = transformers.AutoModelForCausalLM
    model = auto_model.from_config(config, dtype=dtype)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    # Written for the owner only; another user, of a container say, shall read it too.
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)
    _write_tokenizer(folder, settings["vocab_size"], settings["max_position_embeddings"])
    generation = {"eos_token_id": list(_special_ids(settings["vocab_size"])[::2]), "bos_token_id": end}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
    return folder


def _special_ids(vocabulary_size: int) -> list[int]:
    return list(range(vocabulary_size - len(_SPECIAL_TOKENS), vocabulary_size))


def _write_tokenizer(folder: Path, vocabulary_size: int, context_length: int) -> None:
    """Writes a byte-level BPE without merges; ids that no text gives decode to a name of their own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: place for place, symbol in enumerate(alphabet)}
    fillers = vocabulary_size - len(alphabet) - len(_SPECIAL_TOKENS)
    vocabulary |= {f"w{place}": len(alphabet) + place for place in range(fillers)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL_TOKENS))
    tokenizer_class: Any = transformers.PreTrainedTokenizerFast
    fast = tokenizer_class(
        tokenizer_object=tokenizer,
        eos_token=_SPECIAL_TOKENS[0],
        pad_token=_SPECIAL_TOKENS[0],
        model_max_length=context_length,
        chat_template=_CHAT_TEMPLATE,
    )
    fast.save_pretrained(folder)


def main() -> None:
    """Runs from the command line."""
    parser = argparse.ArgumentParser(prog="headrace make-model", description=__doc__)
    parser.add_argument("--shape", required=True, choices=sorted(SHAPES))
    parser.add_argument("--out", required=True, type=Path, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    make_model(arguments.shape, arguments.out, seed=arguments.seed)


if __name__ == "__main__":
    main()
