"""Generating over gRPC: gateway and scheduler are real, the runner's tokens are scripted."""

import pytest
from gateway_stack import BOS, CONTEXT, EOS, MODEL, collect, conversation, ids_of, saying, stack, text_request, word_id

from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_pb2 as pb

WITH_IDS = pb.OutputOptions(return_token_ids=True)


async def test_stream_and_unary_give_the_same_text_ids_and_usage() -> None:
    """DET-1: characters split over tokens arrive whole, by every call."""
    said = [word_id(b"\xf0\x9f\x98"), *ids_of(b"\x80\xc4\x8f")]
    async with stack(saying(said)) as deployed:
        chunks = await collect(deployed.client.StreamGenerate(text_request(output=WITH_IDS)))
        answer = await deployed.client.Generate(text_request(output=WITH_IDS))
        decoded = await deployed.client.Detokenize(pb.DetokenizeRequest(token_ids=[*said, EOS]))
    assert "".join(chunk.text for chunk in chunks) == "😀ď" == answer.choices[0].text == decoded.text
    assert all("�" not in chunk.text for chunk in chunks)
    assert [i for chunk in chunks for i in chunk.token_ids] == [*said, EOS] == list(answer.choices[0].token_ids)
    last = chunks[-1]
    assert last.finish_reason == gen.FINISH_REASON_STOP == answer.choices[0].finish_reason
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (2, 5)
    assert answer.usage.completion_tokens == 5
    assert answer.usage.cached_tokens_l1 == 0


async def test_chunks_are_numbered_without_a_gap_and_only_the_last_one_ends() -> None:
    async with stack(saying(ids_of(b"hello"))) as deployed:
        chunks = await collect(deployed.client.StreamGenerate(text_request(options={"request_id": "r-1"})))
    assert [chunk.sequence for chunk in chunks] == list(range(len(chunks)))
    assert {chunk.request_id for chunk in chunks} == {"r-1"}
    assert {chunk.model for chunk in chunks} == {MODEL}
    assert chunks[-1].model_version == "w" * 12
    assert [chunk.HasField("finish_reason") for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert not any(chunk.token_ids for chunk in chunks)
    timing = chunks[-1].timing
    assert 0 < timing.time_to_first_token.ToNanoseconds() <= timing.total.ToNanoseconds()


async def test_max_tokens_inside_a_character_gives_one_replacement_at_the_end_in_both_calls() -> None:
    """DET-1."""
    request = text_request(stop={"max_tokens": 3})
    async with stack(saying(ids_of("a😀".encode()))) as deployed:
        chunks = await collect(deployed.client.StreamGenerate(request))
        answer = await deployed.client.Generate(request)
    assert "".join(chunk.text for chunk in chunks) == answer.choices[0].text == "a�"
    assert answer.choices[0].finish_reason == gen.FINISH_REASON_LENGTH
    assert answer.usage.completion_tokens == 3


@pytest.mark.parametrize(
    ("stop", "include", "text", "matched", "most_tokens"),
    [
        ("DEFGHIJ", False, "", "DEFGHIJ", 4),
        ("DEFGHIJ", True, "DEFGHIJ", "DEFGHIJ", 4),
        ("DEFX", False, "DEFGHIJK", "", 6),
    ],
)
async def test_stop_strings_end_text_and_work(
    stop: str, include: bool, text: str, matched: str, most_tokens: int
) -> None:
    """STOP-1 and STOP-6: the runner stops too, not only the text."""
    said = [word_id(b"DEF"), *ids_of(b"G"), word_id(b"HI"), *ids_of(b"JK")]
    forever = ids_of(b"z")[0] if matched else EOS
    request = text_request(
        stop={"stop": [stop], "include_stop_in_output": include}, output=WITH_IDS, options={"request_id": "r"}
    )
    async with stack(saying(said, then=forever)) as deployed:
        chunks = await collect(deployed.client.StreamGenerate(request))
        answer = await deployed.client.Generate(request)
        computed = deployed.runner.engine.computed_tokens["r"]
        assert deployed.held_blocks == 0
    assert "".join(chunk.text for chunk in chunks) == answer.choices[0].text == text
    assert chunks[-1].stop_matched == answer.choices[0].stop_matched == matched
    assert chunks[-1].finish_reason == gen.FINISH_REASON_STOP
    ids = [i for chunk in chunks for i in chunk.token_ids]
    assert len(ids) == chunks[-1].usage.completion_tokens <= most_tokens
    assert computed < 200


async def test_text_held_back_for_a_stop_string_is_flushed_at_the_end() -> None:
    """STOP-1, run 3."""
    async with stack(saying([word_id(b"DEF")])) as deployed:
        chunks = await collect(deployed.client.StreamGenerate(text_request(stop={"stop": ["DEFX"]})))
    assert "".join(chunk.text for chunk in chunks) == "DEF"


async def test_a_conversation_gives_the_same_answer_by_chat_and_by_messages() -> None:
    """TOK-1: one path, one BOS."""
    async with stack(saying(ids_of(b"yes"))) as deployed:
        chat = await deployed.client.Chat(pb.ChatRequest(conversation=conversation()))
        streamed = await collect(deployed.client.StreamChat(pb.ChatRequest(conversation=conversation())))
        prompt = pb.Prompt(messages=conversation())
        generated = await deployed.client.Generate(pb.GenerateRequest(prompt=prompt))
        tokens = await deployed.client.Tokenize(pb.TokenizeRequest(prompt=prompt))
    assert chat.choices[0].text == generated.choices[0].text == "".join(chunk.text for chunk in streamed) == "yes"
    assert chat.usage.prompt_tokens == len(tokens.token_ids) == generated.usage.prompt_tokens
    assert tokens.token_ids[0] == BOS
    assert list(tokens.token_ids).count(BOS) == 1


async def test_the_runner_gets_exactly_the_ids_of_the_prompt() -> None:
    """TOK-1: token ids are used as they are; a second run finds its prefix in the cache."""
    ids = [BOS, BOS, *ids_of(b"abcdefgh")]
    request = pb.GenerateRequest(prompt=pb.Prompt(token_ids=pb.TokenIds(ids=ids)), stop={"max_tokens": 1})
    async with stack(saying(ids_of(b"x"))) as deployed:
        cold = await deployed.client.Generate(request)
        warm = await deployed.client.Generate(request)
        introduced = [list(new.token_ids) for plan in deployed.runner.plans for new in plan.new_sequences]
    assert introduced == [ids, ids]
    assert (cold.usage.cached_tokens_l1, warm.usage.cached_tokens_l1) == (0, 8)


async def test_sampling_reaches_the_runner_without_an_absent_field() -> None:
    """VAL-6: zeros stay zeros."""
    async with stack(saying(ids_of(b"x"))) as deployed:
        zeros = gen.SamplingParams(temperature=0, top_p=0, top_k=0, seed=0)
        await deployed.client.Generate(text_request(sampling=zeros, stop={"max_tokens": 1, "min_tokens": 1}))
        await deployed.client.Generate(text_request(stop={"max_tokens": 1}))
        first, second = [new for plan in deployed.runner.plans for new in plan.new_sequences]
    assert (first.sampling.temperature, first.sampling.top_p, first.sampling.top_k, first.seed) == (0, 0, 0, 0)
    assert first.sampling.HasField("temperature")
    assert first.min_tokens == 1
    assert (second.sampling.temperature, second.sampling.top_p) == (1, 1)
    assert second.seed != 0


async def test_the_context_is_filled_to_the_last_token_and_not_further() -> None:
    """VAL-4."""
    endless = saying([], then=ids_of(b"x")[0])
    async with stack(endless) as deployed:
        prompt = pb.Prompt(token_ids=pb.TokenIds(ids=ids_of(b"a") * (CONTEXT - 1)))
        answer = await deployed.client.Generate(pb.GenerateRequest(prompt=prompt))
    assert answer.usage.completion_tokens == 1
    assert answer.choices[0].finish_reason == gen.FINISH_REASON_LENGTH


async def test_special_tokens_show_only_where_they_were_asked_for() -> None:
    output = pb.OutputOptions(skip_special_tokens=False)
    async with stack(saying([*ids_of(b"a"), 2, *ids_of(b"b")])) as deployed:
        shown = await deployed.client.Generate(text_request(output=output))
        hidden = await deployed.client.Generate(text_request())
    assert shown.choices[0].text == "a<|user|>b</s>"
    assert hidden.choices[0].text == "ab"


async def test_a_stop_token_ends_the_answer_and_leaves_no_text() -> None:
    stop_id = ids_of(b";")[0]
    async with stack(saying(ids_of(b"ab;cd"))) as deployed:
        answer = await deployed.client.Generate(text_request(stop={"stop_token_ids": [stop_id]}))
        kept = await deployed.client.Generate(
            text_request(stop={"stop_token_ids": [stop_id], "include_stop_in_output": True})
        )
    assert (answer.choices[0].text, kept.choices[0].text) == ("ab", "ab;")
    assert answer.usage.completion_tokens == 3


async def test_tokens_come_back_as_text_and_text_as_tokens() -> None:
    async with stack(saying([])) as deployed:
        tokens = await deployed.client.Tokenize(pb.TokenizeRequest(prompt=pb.Prompt(text="Aé")))
        text = await deployed.client.Detokenize(
            pb.DetokenizeRequest(token_ids=tokens.token_ids, skip_special_tokens=False)
        )
    assert list(tokens.token_ids) == [BOS, *ids_of("Aé".encode())]
    assert list(tokens.tokens) == ["<s>", "A", "�", "�"]
    assert tokens.context_length == CONTEXT
    assert text.text == "<s>Aé"


async def test_models_are_listed_with_what_they_hold() -> None:
    async with stack(saying([])) as deployed:
        models = (await deployed.client.ListModels(pb.ListModelsRequest())).models
    assert [(m.name, m.version, m.context_length, m.runners, m.is_default) for m in models] == [
        (MODEL, "w" * 12, CONTEXT, 1, True)
    ]
