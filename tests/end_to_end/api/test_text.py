"""Text in, text out, with the demo model: completions, chats, streams, stop strings, samples, all forms of a prompt.
Its tokens, log-probabilities and scores equal those of transformers."""

import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.train_draft.openings import openings
from tests.support.real_model_goldens import check_greedy, check_scores
from tests.support.tiny_engines import driven

pytestmark = pytest.mark.optimized

NAME = "smollm2-135m-instruct"
PROMPT = "The capital of France is"
GREEDY = SamplingParams(temperature=0, max_tokens=8)
CAPITAL = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


@pytest.fixture(scope="module")
def llm(real_model):
    real_model(NAME)
    return LLM(NAME, dtype="float32", max_model_len=256, max_num_seqs=8, max_num_batched_tokens=32, buckets="8 32x8")


@pytest.fixture(scope="module")
def greedy(llm):
    return llm.generate(PROMPT, GREEDY, use_tqdm=False)[0]


def test_the_demo_model_knows_paris(llm, greedy):
    out = greedy
    assert out.outputs[0].text.startswith(" Paris.")
    assert out.prompt_token_ids == [504, 3575, 282, 4649, 314]
    assert (out.prompt, out.finished, len(out.outputs[0].token_ids)) == (PROMPT, True, 8)
    assert out.outputs[0].text == llm.get_tokenizer().decode(out.outputs[0].token_ids)


def test_greedy_tokens_and_logprobs_equal_transformers(llm):
    check_greedy(llm, NAME)


def test_scores_equal_transformers(llm):
    check_scores(llm, NAME)


def test_all_forms_of_a_prompt_give_the_same(llm, greedy):
    ids = [504, 3575, 282, 4649, 314]
    forms = [PROMPT, {"prompt": PROMPT}, {"prompt_token_ids": ids}, ids]
    texts = {out.outputs[0].text for out in llm.generate(forms, GREEDY, use_tqdm=False)}
    assert texts == {greedy.outputs[0].text}


def test_results_come_in_the_order_of_prompts_each_with_its_own_parameters(llm):
    prompts = [f"Number {i} is" for i in range(11)]
    params = [SamplingParams(temperature=0, max_tokens=1 + i % 4, ignore_eos=True) for i in range(11)]
    outs = llm.generate(prompts, params, use_tqdm=False)
    assert [o.prompt for o in outs] == prompts
    assert [len(o.outputs[0].token_ids) for o in outs] == [1 + i % 4 for i in range(11)]


@pytest.mark.parametrize(("stop", "num_rounds"), [("Paris", 1), ("ris.", 4), ("s.\n", 1), ("s.\n", 8)])
def test_a_stop_string_cuts_the_text_also_across_tokens(llm, greedy, stop, num_rounds):
    whole = greedy.outputs[0].text
    params = SamplingParams(temperature=0, max_tokens=8, stop=[stop, "never there"])
    shown = SamplingParams(temperature=0, max_tokens=8, stop=stop, include_stop_str_in_output=True)
    with driven(llm, num_rounds, is_overlapped=True):
        out = llm.generate(PROMPT, params, use_tqdm=False)[0].outputs[0]
        text = llm.generate(PROMPT, shown, use_tqdm=False)[0].outputs[0].text
    assert out.text == whole[: whole.index(stop)]
    assert (out.finish_reason, out.stop_reason) == ("stop", stop)
    assert text == whole[: whole.index(stop)] + stop


def test_a_stop_string_completed_by_the_last_allowed_token_still_counts(llm, greedy):
    two = llm.get_tokenizer().decode(greedy.outputs[0].token_ids[:2])
    params = SamplingParams(temperature=0, max_tokens=2, stop=two[-1])
    out = llm.generate(PROMPT, params, use_tqdm=False)[0].outputs[0]
    assert (out.finish_reason, out.stop_reason) == ("stop", two[-1])


def test_bad_words_do_not_appear(llm):
    params = SamplingParams(temperature=0, max_tokens=8, bad_words=["Paris", "The answer"])
    text = llm.generate(PROMPT, params, use_tqdm=False)[0].outputs[0].text
    assert "Paris" not in text
    assert "The answer" not in text


def test_samples_of_one_prompt_differ_and_repeat(llm):
    params = SamplingParams(temperature=1.0, n=4, max_tokens=8, seed=9)
    first, second = (llm.generate(PROMPT, params, use_tqdm=False)[0].outputs for _ in range(2))
    assert [c.index for c in first] == [0, 1, 2, 3]
    assert len({c.text for c in first}) == 4
    assert [c.text for c in first] == [c.text for c in second]


def test_unseeded_requests_draw_from_the_engine_seed_and_the_order_of_arrival(llm):
    params = SamplingParams(temperature=1.0, max_tokens=8)
    a, b = llm.generate([PROMPT, PROMPT], params, use_tqdm=False)
    assert a.outputs[0].token_ids != b.outputs[0].token_ids


def test_detokenize_off_leaves_the_text_empty(llm):
    params = SamplingParams(temperature=0, max_tokens=3, detokenize=False)
    out = llm.generate(PROMPT, params, use_tqdm=False)[0].outputs[0]
    assert (out.text, len(out.token_ids)) == ("", 3)


def test_the_demo_model_answers_as_an_assistant(llm):
    rendered = llm.render_chat(CAPITAL)
    assert rendered["prompt"].endswith("<|im_start|>assistant\n")
    assert rendered["prompt_token_ids"].count(1) == 3  # <|im_start|>: system, user, assistant
    params = SamplingParams(temperature=0, max_tokens=24)
    (answer,) = llm.chat(CAPITAL, params, use_tqdm=False)
    assert "Paris" in answer.outputs[0].text
    assert (answer.outputs[0].finish_reason, answer.outputs[0].stop_reason) == ("stop", None)
    (again,) = llm.generate(rendered, params, use_tqdm=False)
    assert again.outputs == answer.outputs


@pytest.mark.thorough
def test_texts_for_training_begin_with_questions_of_the_model(llm):
    """After what stands before every question; each is drawn with a seed of its own, and the answer may begin."""
    one, other = openings(llm, None, [0, 1], 0)
    asked = llm.render_chat(CAPITAL)["prompt_token_ids"]
    for tokens in (one, other):
        assert tokens[:20] == asked[:20]
        assert tokens[-3:] == asked[-3:]
        assert tokens.count(1) == 3
    assert one != other
    assert openings(llm, None, [1], 0) == [other]


def test_the_assistant_continues_its_final_message(llm):
    begun = [*CAPITAL, {"role": "assistant", "content": "The capital of France is"}]
    rendered = llm.render_chat(begun, add_generation_prompt=False, continue_final_message=True)
    assert rendered["prompt"].endswith("<|im_start|>assistant\nThe capital of France is")
    pieces = [piece.outputs[0].text for piece in llm.stream(rendered, GREEDY)]
    assert "".join(pieces).startswith(" Paris")
    assert len(pieces) > 1  # as many as steps, which may draw several tokens


def test_streams_of_real_text_are_what_generate_gives(llm):
    params = SamplingParams(temperature=1.0, seed=4, n=3, max_tokens=16, logprobs=2, stop=[".", "\n\n"])
    (whole,) = llm.generate("Naïve café 😀:", params, use_tqdm=False)
    pieces = list(llm.stream("Naïve café 😀:", params))
    for sample in whole.outputs:
        mine = [c for piece in pieces for c in piece.outputs if c.index == sample.index]
        assert "".join(c.text for c in mine) == sample.text
        assert [token for c in mine for token in c.token_ids] == sample.token_ids
        assert (mine[-1].finish_reason, mine[-1].stop_reason) == (sample.finish_reason, sample.stop_reason)
