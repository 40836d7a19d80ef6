"""The questions and answers that the built-in model learns, and the wordings that each question is asked in."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

DATA_FOLDER = Path(__file__).parent / "data"

DEFINITION_FORMS = (
    "What {is} {name}?",
    "Explain {name}.",
    "Tell me about {name}.",
    "Define {name}.",
    "whats {name}",
    "{bare}?",
    "{bare}",
    "{bare} meaning",
    "What does {bare} mean?",
    "Describe {name}.",
    "Can you explain {name}?",
    "Give me a short definition of {name}.",
    "What exactly {is} {name}?",
    "In short, what {is} {name}?",
    "I want to understand {name}.",
    "what do you mean by {bare}",
    "How would you define {name}?",
    "What {is} {name} in LLM serving?",
)


@dataclass(frozen=True, slots=True)
class Question:
    """One question, its answer, and how it is asked in training and in the test."""

    id: str
    topic: str
    text: str
    answer: str
    wordings: tuple[str, ...]
    definition_wordings: tuple[str, ...]
    held_out: tuple[str, ...]

    @property
    def all_wordings(self) -> tuple[str, ...]:
        """Gives every wording that is trained on, written out or made from a name."""
        return tuple(dict.fromkeys(self.wordings + self.definition_wordings))

    @property
    def is_chinese(self) -> bool:
        """Says whether the question is asked in Chinese."""
        return re.search(r"[\u4e00-\u9fff]", self.text) is not None


def load_questions(folder: Path = DATA_FOLDER) -> list[Question]:
    """Reads every question of the folder, in the order of the files' names."""
    return [
        _question(path.stem, json.loads(line))
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def normalized(wording: str) -> str:
    """Reduces a wording to what two equal questions share: lower-case words without punctuation."""
    return " ".join(re.findall(r"\w+", wording.lower()))


def _question(topic: str, record: dict) -> Question:
    definitions = tuple(_define(form, name) for name in record.get("names", ()) for form in DEFINITION_FORMS)
    wordings = tuple(dict.fromkeys([record["question"], *record["wordings"]]))
    return Question(
        record["id"], topic, record["question"], record["answer"], wordings, definitions, tuple(record["held_out"])
    )


def _define(form: str, name: str) -> str:
    """Puts a name into a definition form; a leading "+" marks a plural."""
    is_plural = name.startswith("+")
    name = name.removeprefix("+")
    bare = re.sub(r"^(a|an|the) ", "", name)
    wording = form.format(name=name, bare=bare, **{"is": "are" if is_plural else "is"})
    return wording if form.startswith("what") else wording[0].upper() + wording[1:]
