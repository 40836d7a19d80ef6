"""Trains the byte-level BPE tokenizer and dresses it for transformers."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

# Small, so that words of one stem share tokens and a word that is not in the data still has familiar parts.
VOCABULARY_SIZE = 3072
CONTEXT_TOKENS = 2048
PAD, BOS, END = "<|pad|>", "<|bos|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text().strip()
DEFAULT_SYSTEM_PROMPT = CHAT_TEMPLATE.split("<|system|>")[1].split("<|end|>")[0]


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Learns the merges from the texts; every byte is in the vocabulary, so any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    # Chinese has no spaces: without the split a whole phrase would become one token.
    single_characters = pre_tokenizers.Split(Regex("[\u4e00-\u9fff]"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [single_characters, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[PAD, BOS, END, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    bos_id = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, bos_id)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )
