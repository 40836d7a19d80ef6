"""The questions that the built-in model is trained on and measured with."""

import random
import re
from collections import defaultdict

import pytest

from models.augment import vary
from models.questions import DATA_FOLDER, Question, load_questions, normalized


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return load_questions()


def test_there_are_enough_questions_and_enough_of_them_in_chinese(questions: list[Question]) -> None:
    assert len({question.id for question in questions}) == len(questions) >= 200
    assert sum(question.is_chinese for question in questions) >= 30
    assert "What is a KV cache?" in {question.text for question in questions}


def test_each_question_has_several_wordings(questions: list[Question]) -> None:
    assert [question.id for question in questions if len(question.all_wordings) < 5] == []


def test_enough_wordings_are_held_out_in_each_topic_and_language(questions: list[Question]) -> None:
    held_out = [question for question in questions if question.held_out]

    assert len(held_out) >= 100
    assert {question.topic for question in held_out} == {question.topic for question in questions}
    assert sum(question.is_chinese for question in held_out) >= 10


def test_no_held_out_wording_is_a_training_wording(questions: list[Question]) -> None:
    trained = {normalized(wording) for question in questions for wording in question.all_wordings}

    leaked = [wording for question in questions for wording in question.held_out if normalized(wording) in trained]

    assert leaked == []


def test_no_wording_has_two_answers(questions: list[Question]) -> None:
    owners = defaultdict(set)
    for question in questions:
        for wording in (*question.all_wordings, *question.held_out):
            owners[normalized(wording) or wording].add(question.id)

    assert [wording for wording, ids in owners.items() if len(ids) > 1] == []


def test_answers_are_short_and_distinct(questions: list[Question]) -> None:
    answers = [question.answer for question in questions]

    assert len(set(answers)) == len(answers)
    assert [answer for answer in answers if not 5 <= len(answer) <= 240] == []


def test_a_chinese_question_has_a_chinese_answer(questions: list[Question]) -> None:
    chinese = re.compile("[\u4e00-\u9fff]")

    mixed = [question.id for question in questions if question.is_chinese != bool(chinese.search(question.answer))]

    assert mixed == []


def test_variations_are_the_same_for_the_same_seed(questions: list[Question]) -> None:
    first, second = (
        [vary(question.text, question.is_chinese, chance) for question in questions]
        for chance in (random.Random(7), random.Random(7))
    )

    assert first == second


def test_data_files_hold_valid_text() -> None:
    for path in DATA_FOLDER.glob("*.jsonl"):
        text = path.read_text(encoding="utf-8")
        assert text.endswith("\n")
        assert "\ufffd" not in text
