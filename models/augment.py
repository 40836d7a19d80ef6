"""Mechanical variations of a wording: what people type that nobody writes down."""

import random
import re

from models.rewording import reword, reword_chinese

UNCHANGED_RATE = 0.2
KEYWORDS_RATE = 0.2

ENGLISH_PREFIXES = (
    "Please tell me: ", "Quick question: ", "Hi, ", "Hello! ", "Can you tell me, ", "I have a question. ",
    "Sorry, but ", "Could you explain: ", "I'd like to know: ", "so ", "ok, ", "Question: ", "Briefly: ", "In short: ",
    "Tell me, ", "I am new here. ", "Do you know ", "Headrace, ", "Please answer: ", "and ", "One more thing: ",
    "Please: ",
)  # fmt: skip
ENGLISH_SUFFIXES = (
    " please", " Thanks!", " in simple terms", " briefly", " in one sentence", " exactly", " Please be short.",
    " again", " I wonder.", " for a beginner", " in practice", " then", "??", "!", " ...", " Explain.", " Thank you.",
)  # fmt: skip
CHINESE_PREFIXES = (
    "请问", "请问一下，", "你好，", "我想知道", "请告诉我，", "想问一下，", "简单说说，", "麻烦解释一下：", "问题：",
)  # fmt: skip
CHINESE_SUFFIXES = ("？", "?", "呢？", "，谢谢", "。", "！", "，请简单回答", "，请解释一下")
FILLER_WORDS = frozenset((
    "a", "an", "the", "is", "are", "do", "does", "did", "of", "to", "in", "for", "can", "could", "you", "me", "my", "i",
    "it", "its", "with", "be", "please",
))  # fmt: skip
# Words that change nothing, so that the model learns to read past words which it does not know.
PADDING_WORDS = (
    "actually", "really", "basically", "usually", "here", "just", "exactly", "again", "kind", "sort", "thing",
    "stuff", "someone", "people", "users", "everybody", "we", "they", "today", "now", "often", "maybe", "perhaps",
    "then", "still", "even", "ever", "some", "any", "all", "such", "this", "that", "these", "those", "there", "way",
    "case", "point", "system", "software", "machine", "big", "small", "good", "nice", "right", "normally", "always",
    "typical", "common", "modern", "simple", "short", "quick", "own", "other", "certain", "given", "well", "also",
    "too", "very", "quite", "rather", "about", "into", "over", "around", "through", "during", "by", "at", "on",
    "as", "so", "but", "if", "and", "like", "see", "get", "give", "say", "think", "guess", "suppose", "believe",
    "heard", "read", "wonder", "hmm", "um",
)  # fmt: skip
FRAGMENT_FRAMES = (
    "{}", "{}?", "which {}?", "what {}?", "why {}?", "how {}?", "what is it that {}", "where {}", "when {}", "who {}",
    "is it true that {}?", "tell me about {}", "something about {}", "I mean {}", "what do you call {}?", "does {}?",
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def vary(wording: str, is_chinese: bool, chance: random.Random) -> str:
    """Gives the wording another dress, other words, or leaves only its keywords; sometimes it stays as it is."""
    draw = chance.random()
    if draw < UNCHANGED_RATE:
        return wording
    if is_chinese:
        return _vary_chinese(wording, chance)
    words = (reword(wording, chance) if chance.random() < 0.6 else wording).split()
    if draw < UNCHANGED_RATE + KEYWORDS_RATE:
        words = _keywords(words, chance)
    return _dress(" ".join(_disturb(words, chance)), chance)


def fragment(answer: str, is_chinese: bool, chance: random.Random) -> str:
    """Asks with the answer's own words: people often describe what they look for and want its name or reason."""
    if is_chinese:
        clause = chance.choice(re.split("[，。：；、]", answer)[:-1] or [answer])
        return chance.choice(("", *CHINESE_PREFIXES)) + clause
    words = re.findall(r"[^\s,;:.?!()\"]+", answer)
    length = min(len(words), chance.randint(4, 10))
    start = chance.randint(0, len(words) - length)
    picked = words[start : start + length]
    if chance.random() < 0.4:
        picked = _keywords(picked, chance)
    return _dress(chance.choice(FRAGMENT_FRAMES).format(" ".join(_disturb(picked, chance))), chance)


def gibberish(chance: random.Random, alphabet: str) -> str:
    """Makes input without a question in it: keys hit at random, digits, signs, small words, repetitions."""
    kind = chance.randrange(6)
    if kind == 0:
        return " ".join(_letters(chance, LETTERS, 2, 9) for _ in range(chance.randint(1, 6)))
    if kind == 1:
        return _letters(chance, "0123456789 .,;-+", 1, 24)
    if kind == 2:
        return _letters(chance, "!?#$%&*()<>[]{}~^|\\/@=_. \n", 1, 16)
    if kind == 3:
        return _letters(chance, alphabet + "äöüßéñøλπд世界和平猫狗🙂🚀😀", 3, 30)
    if kind == 4:
        return " ".join(chance.choices(PADDING_WORDS, k=chance.randint(3, 14)))
    separator = chance.choice((" ", " ", "", "\n", ", "))
    repetitions = round(4 * 100 ** chance.random())
    return separator.join([chance.choice((_letters(chance, LETTERS, 1, 6), *PADDING_WORDS))] * repetitions)


def _keywords(words: list[str], chance: random.Random) -> list[str]:
    """Keeps most of the words that carry the topic, often in another order, as in a search box."""
    kept = [word for word in words if word.lower() not in FILLER_WORDS and chance.random() < 0.85] or words
    if chance.random() < 0.6:
        chance.shuffle(kept)
    return kept


def _letters(chance: random.Random, alphabet: str, shortest: int, longest: int) -> str:
    return "".join(chance.choices(alphabet, k=chance.randint(shortest, longest)))


def _disturb(words: list[str], chance: random.Random) -> list[str]:
    if chance.random() < 0.3:
        words = [word for word in words if word.lower() not in FILLER_WORDS or chance.random() < 0.6] or words
    if chance.random() < 0.3:
        words = words.copy()
        for _ in range(chance.randint(1, 4)):
            words.insert(chance.randint(0, len(words)), chance.choice(PADDING_WORDS))
    return _with_typing_error(words, chance) if chance.random() < 0.08 else words


def _dress(text: str, chance: random.Random) -> str:
    if chance.random() < 0.4:
        text = text.rstrip("?.!")
    if chance.random() < 0.3:
        text = chance.choice(ENGLISH_PREFIXES) + (text[:1].lower() + text[1:] if chance.random() < 0.6 else text)
    if chance.random() < 0.2:
        text = text.rstrip("?.! ") + chance.choice(ENGLISH_SUFFIXES)
    case = chance.random()
    if case < 0.35:
        return text.lower()
    if case < 0.38:
        return text.upper()
    return text[:1].upper() + text[1:] if case < 0.7 else text


def _vary_chinese(wording: str, chance: random.Random) -> str:
    text = reword_chinese(wording, chance) if chance.random() < 0.6 else wording
    if chance.random() < 0.5:
        text = text.rstrip("？?。")
    if chance.random() < 0.3:
        text = chance.choice(CHINESE_PREFIXES) + text
    if chance.random() < 0.3:
        text = text.rstrip("？?。") + chance.choice(CHINESE_SUFFIXES)
    if chance.random() < 0.3:
        text = "".join(character for character in text if chance.random() < 0.92) or text
    if chance.random() < 0.2:
        text = text.replace(" ", "")
    return text.lower() if chance.random() < 0.3 else text


def _with_typing_error(words: list[str], chance: random.Random) -> list[str]:
    place = chance.randrange(len(words))
    word = words[place]
    if len(word) < 5:
        return words
    at = chance.randrange(1, len(word) - 1)
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    changed = swapped if chance.random() < 0.5 else word[:at] + word[at + 1 :]
    return [*words[:place], changed, *words[place + 1 :]]
