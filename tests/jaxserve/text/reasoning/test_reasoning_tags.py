"""Reasoning is divided from the message, wherever the tags come from."""

import pytest

from jaxserve.text.parsing.answer_format import AnswerFormat
from jaxserve.text.reasoning.reasoning_tags import REASONING_TAGS, tags_of_template
from tests.jaxserve.text.parsing.parsed_answers import divisions, parsed
from tests.support.golden_tokenizers import template_of

QWEN, R1 = REASONING_TAGS["qwen3"], REASONING_TAGS["deepseek_r1"]
# The tags, the end of the prompt, the answer, its reasoning, its content.
ANSWERS = [
    (QWEN, "assistant\n", "<think>\nhm\n</think>\n\nYes.\n", "hm", "Yes.\n"),
    (QWEN, "assistant\n<think>\n", "hm\n</think>\n\nYes.", "hm", "Yes."),
    (QWEN, "assistant\n<think>\n", "<think>\nhm</think>Yes.", "hm", "Yes."),
    (QWEN, "<think>\n\n</think>\n\n", "Yes.", "", "Yes."),
    (QWEN, "assistant\n", "  Yes </think>", "", "  Yes </think>"),
    (QWEN, "assistant\n", "<think>\n\n</think>\n\nYes", "", "Yes"),
    (QWEN, "assistant\n", "<think>hm, </thin", "hm, </thin", ""),
    (QWEN, "assistant\n", " <thin", "", " <thin"),
    (QWEN, "assistant\n", " \n", "", " \n"),
    (R1, "<｜Assistant｜>", "hm </think> Yes", "hm", "Yes"),
    (R1, "<｜Assistant｜><think>\n", "hm </think> Yes", "hm", "Yes"),
    (R1, "<｜Assistant｜></think>", "Yes", "", "Yes"),
    (REASONING_TAGS["mistral"], "[/INST]", "[THINK]hm[/THINK]Yes", "hm", "Yes"),
]


@pytest.mark.parametrize(("tags", "prompt", "text", "reasoning", "content"), ANSWERS)
def test_reasoning_ends_where_its_tag_is(tags, prompt, text, reasoning, content):
    answers = AnswerFormat(tags=tags, begins_inside=tags.begins_inside(prompt))
    for pieces in ([text], *divisions(text, 20)):
        found = parsed(answers, pieces)
        assert (found.reasoning, found.content) == (reasoning, content)


def test_an_answer_without_tags_is_the_same_to_the_last_space():
    for text in ("\n a \n", " ", "", "<think>a</think>"):
        assert parsed(AnswerFormat(), text).content == text


def test_tags_are_chosen_by_the_template():
    assert tags_of_template(template_of("qwen3").source) == "qwen3"
    assert tags_of_template(template_of("llama3_1").source) is None
    assert tags_of_template("[THINK]{{ x }}[/THINK]") == "mistral"
    assert tags_of_template(None) is None
