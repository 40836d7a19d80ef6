"""Measures headrace-tiny: `python -m models.evaluate`."""

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from pathlib import Path

import torch
from rich.progress import track
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from models.augment import gibberish
from models.questions import Question, load_questions

# The texts of a conversation, by turns the user's and the assistant's; the last is the question to be answered.
Chat = tuple[str, ...]

MAX_NEW_TOKENS = 160
ACCEPTABLE_OVERLAP = 0.75
BATCH_PROMPTS = 64
ODD_INPUTS = 200
SAMPLED_WORDINGS = 2000
DEFINITION = (
    "acceptable: token F1 (words in lower case, Chinese by character) of answer and reference at least "
    f"{ACCEPTABLE_OVERLAP}; stopped: end token within {MAX_NEW_TOKENS} tokens; "
    "all answers greedy, fp32, with the default system prompt"
)


def main() -> None:
    """Measures the model of a folder and keeps what the training wrote beside the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "headrace-tiny")
    folder = parser.parse_args().folder
    written = folder / "evaluation.json"
    before = json.loads(written.read_text()) if written.exists() else {}
    write_evaluation(folder, {**before, **evaluate(folder, load_questions())})


def evaluate(folder: Path, questions: list[Question]) -> dict:
    """Asks trained and held-out wordings and input without sense, and counts good answers and stops."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    canonical = _measure(model, tokenizer, [((q.text,), q.answer) for q in questions])
    chance = random.Random(1)
    later = _measure(model, tokenizer, [(_after_others(q, questions, chance), q.answer) for q in questions])
    wordings = [((text,), q.answer) for q in questions for text in q.all_wordings]
    trained = _measure(model, tokenizer, chance.sample(wordings, SAMPLED_WORDINGS))
    held_out, held_out_chinese = (
        _measure(model, tokenizer, [((text,), q.answer) for q in asked for text in q.held_out])
        for asked in (questions, [question for question in questions if question.is_chinese])
    )
    alphabet = "".join(sorted({character for (text,), _ in wordings for character in text}))
    odd = _measure(model, tokenizer, [((gibberish(chance, alphabet),), "") for _ in range(ODD_INPUTS)])
    return {
        "definition": DEFINITION,
        "questions": len(questions),
        "chinese_questions": sum(question.is_chinese for question in questions),
        "parameters": model.num_parameters(),
        "training_questions": canonical,
        "training_questions_after_two_others": later,
        "sampled_training_wordings": {"of": len(wordings), **trained},
        "held_out_wordings": held_out,
        "held_out_wordings_in_chinese": held_out_chinese,
        "odd_input": {key: odd[key] for key in ("asked", "stopped")},
    }


def write_evaluation(folder: Path, numbers: dict) -> None:
    """Prints the numbers and puts them beside the weights."""
    text = json.dumps(numbers, indent=2, ensure_ascii=False)
    (folder / "evaluation.json").write_text(text + "\n")
    print(text)


def overlap(answer: str, reference: str) -> float:
    """Computes the F1 of the two texts' tokens as multisets."""
    words = re.compile(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+")
    given, wanted = (Counter(words.findall(text.lower())) for text in (answer, reference))
    shared = sum((given & wanted).values())
    return 2 * shared / max(1, given.total() + wanted.total())


def answers(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, chats: list[Chat]
) -> dict[Chat, tuple[str, bool]]:
    """Answers the last question of each chat greedily; the flag says whether the model stopped by itself."""
    by_length = defaultdict(list)
    for chat in dict.fromkeys(chats):
        roles = ("user", "assistant")
        messages = [{"role": roles[turn % 2], "content": text} for turn, text in enumerate(chat)]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        by_length[len(prompt)].append((chat, prompt))
    # Prompts of one length need no padding, so a batch computes what a single request would.
    groups = [group[i : i + BATCH_PROMPTS] for group in by_length.values() for i in range(0, len(group), BATCH_PROMPTS)]
    answered = {}
    for group in track(groups, "asking"):
        prompts = torch.tensor([prompt for _, prompt in group])
        with torch.inference_mode():
            outputs = model.generate(
                prompts, attention_mask=torch.ones_like(prompts), do_sample=False, max_new_tokens=MAX_NEW_TOKENS
            )
        for (chat, prompt), output in zip(group, outputs.tolist(), strict=True):
            generated = output[len(prompt) :]
            answered[chat] = (
                tokenizer.decode(generated, skip_special_tokens=True), tokenizer.eos_token_id in generated
            )  # fmt: skip
    return answered


def _after_others(question: Question, questions: list[Question], chance: random.Random) -> Chat:
    others = chance.sample([other for other in questions if other is not question], 2)
    return (*(text for other in others for text in (other.text, other.answer)), question.text)


def _measure(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: list[tuple[Chat, str]]) -> dict:
    given = answers(model, tokenizer, [chat for chat, _ in pairs])
    exact = sum(given[chat][0] == answer for chat, answer in pairs)
    acceptable = sum(overlap(given[chat][0], answer) >= ACCEPTABLE_OVERLAP for chat, answer in pairs)
    stopped = sum(given[chat][1] for chat, _ in pairs)
    return {
        "asked": len(pairs),
        "exact": round(exact / len(pairs), 4),
        "acceptable": round(acceptable / len(pairs), 4),
        "stopped": round(stopped / len(pairs), 4),
    }


if __name__ == "__main__":
    main()
