"""Small tokenizers of both families, as a model folder without weights: enough for a gateway."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

BOS, EOS, USER, ASSISTANT = "<s>", "</s>", "<|user|>", "<|assistant|>"
SPECIALS = (BOS, EOS, USER, ASSISTANT)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role ' ~ message.role) }}{% endif %}"
    "<|user|>{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "max_position_embeddings": 2048,
    "vocab_size": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def byte_alphabet() -> list[str]:
    """Returns the character that stands for each byte in a byte-level vocabulary, by byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


def byte_level(words: tuple[bytes, ...] = (), *, adds_bos: bool = True) -> PreTrainedTokenizerFast:
    """Builds a byte-level BPE: id = 4 + byte; each word (of 2 bytes or more) becomes one token."""
    alphabet = byte_alphabet()
    vocabulary = {token: index for index, token in enumerate([*SPECIALS, *alphabet])}
    merges: list[tuple[str, str]] = []
    for word in words:
        for length in range(2, len(word) + 1):
            left, right = (
                "".join(alphabet[byte] for byte in part) for part in (word[: length - 1], word[length - 1 : length])
            )
            if left + right not in vocabulary:
                vocabulary[left + right] = len(vocabulary)
                merges.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _dressed(tokenizer, adds_bos)


def byte_fallback() -> PreTrainedTokenizerFast:
    """Builds a tokenizer of sentencepiece's kind: words with a leading space, single bytes for what is unknown."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁hello", "▁world", *"helowrd▁a!"]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys([*SPECIALS, *pieces]))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _dressed(tokenizer, adds_bos=True)


def write_folder(folder: Path, tokenizer: PreTrainedTokenizerFast, **config: Any) -> Path:
    """Writes what a gateway reads of a model."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    return folder


def _dressed(tokenizer: Tokenizer, adds_bos: bool) -> PreTrainedTokenizerFast:
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIALS])
    if adds_bos:
        bos_id = tokenizer.token_to_id(BOS)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, bos_id)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )
