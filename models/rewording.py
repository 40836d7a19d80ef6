"""Says a question with other words of the same meaning: phrases that are true of any topic."""

import random
import re

# A pattern and what may stand in its place, separated by "|".
_RULES = {
    r"^what (?:is|are) the difference between (.+) and (.+)$": r"""
        how do \1 and \2 differ|how does \1 differ from \2|\1 vs \2|\1 versus \2|compare \1 and \2|\1 or \2
        |in which way is \1 unlike \2|how do \1 and \2 compare|what distinguishes \1 from \2|difference of \1 and \2
        |what sets \1 apart from \2|is \1 the same as \2""",
    r"^what (?:is|are) (.+)$": r"""
        what's \1|walk me through \1|what is meant by \1|what do people call \1|what's \1 about|what's \1 for|outline \1
        |help me understand \1|give me an overview of \1|say something about \1|introduce \1 to me|do you know \1
        |what should i know about \1|what's the idea of \1|could you describe \1|teach me \1|sum up \1|clarify \1
        |what was \1 again""",
    r"^(?:explain|describe|define|tell me about) (.+)$": r"""
        walk me through \1|talk about \1|clarify \1|outline \1|give me a summary of \1|go over \1|please cover \1
        |i would like an explanation of \1|give an explanation of \1|how about \1""",
    r"^how does (.+) work$": r"""
        in which way does \1 work|how \1 works|explain how \1 works|what is the mechanism of \1|what happens in \1
        |how does \1 function|what is the principle of \1|how is \1 done""",
    r"^what does (.+) do$": r"""
        what is \1 for|what is the purpose of \1|which effect has \1|what's the job of \1|what is \1 good for
        |what can \1 do|what's the use of \1|what effect does \1 have|how does \1 work""",
    r"^what does (.+) mean$": r"""
        what is meant by \1|what's the meaning of \1|what do they mean by \1|how should i read \1|what does \1 stand for
        |how is \1 to be understood|what is \1 supposed to mean""",
    r"^(?:how do i|how can i|how to) (.+)$": r"""
        in which way can i \1|how would i \1|is there a way to \1|what do i do to \1|i want to \1|how should i \1
        |what is the way to \1|by which means do i \1|how could one \1|i need to \1|what must i do to \1|can i \1
        |show me how to \1|how might i \1|which command or option lets me \1""",
    r"^why (is|are|does|do|can|should|must|did|has|not) (.+)$": r"""
        for which reason \1 \2|how come \2|what is the reason that \2|tell me why \2|why exactly \1 \2|explain why \2
        |what makes that \2|i wonder why \2|what's the cause that \2""",
    r"^how (is|are) (.+)$": r"in which way \1 \2|by which means \1 \2|how does one get \2|tell me how \2",
    r"^which (.+)$": r"what \1|tell me which \1|name the \1",
    r"^list (.+)$": r"name \1|enumerate \1|show me \1|give me \1|which are \1|what are all \1",
    r"^what happens (.+)$": r"""
        what goes on \1|what will happen \1|what does the system do \1|what occurs \1|what's the consequence \1
        |describe what happens \1""",
    r"^when (.+)$": r"in which case \1|under which conditions \1|in which situations \1|at which time \1",
    r"^who (.+)$": r"which process \1|which component \1|which part \1|tell me who \1",
    r"^where (.+)$": r"in which place \1|in which folder or process \1|tell me where \1",
    r"\b(?:benefit|advantage)s? of\b": "point of|gain from|merit of|good side of|value of|benefits of",
    r"\bgood for\b": "useful for|there for|meant for",
    r"\blower\b|\breduce\b": "cut|shorten|bring down|decrease|improve",
    r"\buse\b": "choose|take|employ|pick",
    r"\bfast(er)?\b": r"quick\1|speedy",
    r"\bhandled\b": "dealt with|treated|taken care of",
    r"\blimit\b": "restrict|bound|cap",
    r"\bneed\b": "require|want",
    r"\bis used\b": "serves|gets used|is employed",
    r"\bstart\b": "launch|run|bring up|begin",
    r"\bstop\b": "end|halt|finish",
    r"\b(?:fails|crashes|dies)\b": "breaks|goes down|is killed|is lost|crashes|fails",
    r"\bmy\b": "the|a|our",
    r"\bin headrace\b": "within headrace|at headrace|for headrace",
}
_CHINESE_RULES = {
    "^(?:什么是|解释一下|介绍一下|介绍|请介绍)(.+)$": r"""
        \1是什么|\1指什么|\1是什么东西|\1的含义是什么|说明一下\1|谈谈\1|帮我理解\1|讲解\1|聊聊\1|说一说\1|给我讲讲\1
        |可以介绍\1吗|能解释\1吗|你知道\1吗|想了解\1|\1的原理|\1是怎么回事|能不能讲一下\1|能说一下\1吗""",
    "^(.+?)(?:是什么|是什么意思|怎么工作)$": """
        什么是\1|\1指的是什么|\1是啥|说明一下\1|谈谈\1|帮我理解\1|讲解\1|聊聊\1|\1的原理是什么|什么叫\1|\1怎么理解
        |可以介绍\1吗|能解释\1吗|你了解\1吗|\1如何工作|能讲一下\1吗|能说说\1是什么吗""",
    "^(.+)有什么(?:区别|不同)$": r"\1的差异|\1有哪些不同|比较\1|\1差在哪里|\1有何差别|\1不一样在哪|对比一下\1",
    "有什么(?:用|作用|好处)": "有何用处|的用途是什么|能带来什么|的优点是什么|有哪些好处|的意义是什么|用来干什么",
    "(?:做什么|负责什么)": "干什么|承担什么任务|管什么|有哪些任务|的工作是什么|起什么作用|是干嘛的",
    "为什么": "为何|怎么会|什么原因使|是什么原因",
    "(?:怎么|如何|怎样)": "怎么|如何|怎样|用什么办法|要怎么才能|该怎么",
    "(?:有哪些|列出)": "都有什么|有哪几种|有哪几个|说出|列举",
    "会怎样": "会发生什么|有什么影响|有什么后果|会怎么样",
}
_COMPILED = tuple(
    (re.compile(pattern, re.IGNORECASE), [choice.strip() for choice in choices.split("|")])
    for pattern, choices in _RULES.items()
)
_COMPILED_CHINESE = tuple(
    (re.compile(pattern), [choice.strip() for choice in choices.split("|")])
    for pattern, choices in _CHINESE_RULES.items()
)


def reword(wording: str, chance: random.Random) -> str:
    """Applies some of the rules that fit."""
    text = wording.rstrip("?.! ")
    for pattern, choices in _COMPILED:
        if chance.random() < 0.6 and pattern.search(text):
            text = pattern.sub(chance.choice(choices), text, count=1)
    return text + ("?" if chance.random() < 0.6 else "")


def reword_chinese(wording: str, chance: random.Random) -> str:
    """Applies some of the Chinese rules that fit."""
    text = wording.rstrip("？?。 ")
    for pattern, choices in _COMPILED_CHINESE:
        if chance.random() < 0.6 and pattern.search(text):
            text = pattern.sub(chance.choice(choices), text, count=1)
    return text + ("？" if chance.random() < 0.6 else "")
