"""Turns questions into token sequences to train on."""

import random
from dataclasses import dataclass
from itertools import pairwise

from transformers import PreTrainedTokenizerBase

from models.augment import fragment, gibberish, vary
from models.questions import Question, normalized
from models.vocabulary import DEFAULT_SYSTEM_PROMPT, ROLES

SYSTEM_PROMPTS = (
    "You are a helpful assistant.", "You are Headrace.", "Answer briefly.",
    "You are a helpful assistant for LLM serving.",
    "You are an expert in LLM serving. Answer in one sentence.", "", "Be concise.", "You are an AI assistant.",
    "You answer questions about Headrace.", "You are a friendly chat bot. Be polite and precise.",
    "你是一个乐于助人的助手。",
    "You are a test.", "Follow the user's instructions carefully. Respond in plain text.", "请简短回答。",
)  # fmt: skip
OTHER_SYSTEM_PROMPT_RATE = 0.2
DEFINITION_RATE = 0.35
DRILL_TOKENS = 4
RAW_TEXT_RATE = 0.02
GIBBERISH_RATE = 0.02
LONG_INPUT_RATE = 0.003
REPEATED_RATE = 0.005
# How many questions and answers a chat has, and how often.
CHAT_TURNS = {1: 45, 2: 25, 3: 20, 5: 10}
FRAGMENT_RATE = 0.15
CUT_RATE = 0.04
# Off-topic questions have one answer and endless wordings, so they are asked more often.
EXTRA_WEIGHT = {"off-topic": 5, "tell-me-more": 2}


@dataclass(frozen=True, slots=True)
class Sample:
    """One training sequence."""

    token_ids: list[int]
    is_answer: list[bool]
    """Marks the tokens that are to be learned."""
    decisions: list[tuple[int, int]]
    """Places after which an answer begins, and the number of the question that it answers."""


class SampleMaker:
    """Draws training sequences: chats of one or more turns, raw text, and input without sense."""

    def __init__(self, questions: list[Question], tokenizer: PreTrainedTokenizerBase, chance: random.Random) -> None:
        self._questions = questions
        self._tokenizer = tokenizer
        self._chance = chance
        self._numbers = {question.id: number for number, question in enumerate(questions)}
        self._off_topic = next(question for question in questions if question.id == "off-topic")
        self._held_out = {q.id: [normalized(wording) for wording in q.held_out] for q in questions}
        self._special = {role: tokenizer.convert_tokens_to_ids(role) for role in ROLES}
        words = {word for question in questions for wording in question.all_wordings for word in wording.split()}
        self._words = sorted(words)
        self._alphabet = "".join(sorted(set("".join(words))))

    def epoch(self, drill_rate: float) -> list[Sample]:
        """Makes one pass over the questions, in random order; this share of the samples are drills."""
        queue = [question for question in self._questions for _ in range(EXTRA_WEIGHT.get(question.id, 1))]
        self._chance.shuffle(queue)
        samples = []
        while queue:
            draw = self._chance.random()
            if draw < drill_rate:
                samples.append(self._drill(queue.pop()))
                continue
            if draw < drill_rate + RAW_TEXT_RATE:
                samples.append(self._raw_text(queue.pop()))
                continue
            turns = self._chance.choices(list(CHAT_TURNS), weights=list(CHAT_TURNS.values()))[0]
            samples.append(self._chat([self._turn(queue.pop()) for _ in range(min(turns, len(queue)))]))
        return samples

    def _drill(self, question: Question) -> Sample:
        """Asks without a system prompt and stops after the first tokens: choosing is harder to learn than reciting."""
        text, chosen = self._turn(question)
        prompt = [*self._message("<|user|>", self._cut_ids(text.strip())), self._special["<|assistant|>"]]
        sample = Sample([self._tokenizer.bos_token_id, *prompt], [], [])
        self._append_answer(sample, chosen.answer, chosen, most_tokens=DRILL_TOKENS)
        return sample

    def _turn(self, question: Question) -> tuple[str, Question]:
        draw = self._chance.random()
        if draw < LONG_INPUT_RATE:
            return " ".join(self._chance.choices(self._words, k=self._chance.randint(60, 400))), self._off_topic
        if draw < GIBBERISH_RATE:
            return gibberish(self._chance, self._alphabet), self._off_topic
        wording = self._wording(question)
        if self._chance.random() < REPEATED_RATE:
            return " ".join([wording] * self._chance.randint(2, 40)), question
        return wording, question

    def _wording(self, question: Question) -> str:
        """Draws a wording; one that variation has made hold a held-out wording is drawn again."""
        while True:
            wording = self._any_wording(question)
            reduced = normalized(wording)
            if not any(held_out in reduced for held_out in self._held_out[question.id]):
                return wording

    def _any_wording(self, question: Question) -> str:
        if question.topic != "smalltalk" and self._chance.random() < FRAGMENT_RATE:
            return fragment(question.answer, question.is_chinese, self._chance)
        is_definition = question.definition_wordings and self._chance.random() < DEFINITION_RATE
        wordings = question.definition_wordings if is_definition else question.wordings
        return vary(self._chance.choice(wordings), question.is_chinese, self._chance)

    def _chat(self, turns: list[tuple[str, Question]]) -> Sample:
        """Builds what the chat template would, with questions cut into tokens in more than one way."""
        is_other = self._chance.random() < OTHER_SYSTEM_PROMPT_RATE
        system = self._chance.choice(SYSTEM_PROMPTS) if is_other else DEFAULT_SYSTEM_PROMPT
        sample = Sample([self._tokenizer.bos_token_id, *self._message("<|system|>", self._ids(system))], [], [])
        for text, question in turns:
            sample.token_ids.extend(self._message("<|user|>", self._cut_ids(text.strip())))
            sample.token_ids.append(self._special["<|assistant|>"])
            self._append_answer(sample, question.answer, question)
        return sample

    def _raw_text(self, question: Question) -> Sample:
        """Makes a completion without a template: a question and its answer, or an answer alone."""
        sample = Sample([self._tokenizer.bos_token_id], [], [])
        if self._chance.random() < 0.3:
            self._append_answer(sample, question.answer, None)
        else:
            sample.token_ids.extend(self._cut_ids(self._wording(question)))
            self._append_answer(sample, " " + question.answer, question)
        return sample

    def _append_answer(
        self, sample: Sample, answer: str, question: Question | None, most_tokens: int | None = None
    ) -> None:
        answer_ids = [*self._ids(answer), self._tokenizer.eos_token_id][:most_tokens]
        if question is not None:
            sample.decisions.append((len(sample.token_ids) - 1, self._numbers[question.id]))
        sample.is_answer.extend([False] * (len(sample.token_ids) - len(sample.is_answer)))
        sample.token_ids.extend(answer_ids)
        sample.is_answer.extend([True] * len(answer_ids))

    def _message(self, role: str, token_ids: list[int]) -> list[int]:
        return [self._special[role], *token_ids, self._tokenizer.eos_token_id]

    def _cut_ids(self, text: str) -> list[int]:
        """Encodes the text in pieces, so that words are also seen as parts: what an unknown word looks like."""
        if self._chance.random() < 0.5:
            return self._ids(text)
        cuts = [place for place in range(1, len(text)) if self._chance.random() < CUT_RATE]
        return [token for start, end in pairwise([0, *cuts, len(text)]) for token in self._ids(text[start:end])]

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False).input_ids
