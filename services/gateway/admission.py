"""Decides whether a request can be answered, and makes of it what the scheduler needs."""

import uuid
from dataclasses import dataclass

from headrace.v1.generation_pb2 import SamplingParams
from headrace.v1.scheduler_pb2 import SubmitStart
from services.common.errors import Unavailable
from services.gateway.answer import Answer, AnswerRules
from services.gateway.defaults import ModelDefaults, resolve
from services.gateway.detokenizer import Detokenizer
from services.gateway.directory_poller import DirectoryPoller
from services.gateway.limits import output_budget
from services.gateway.model_directory import ModelDirectory, ServedModel
from services.gateway.request import GenerationInput, Prompt
from services.gateway.request_record import RequestRecord
from services.gateway.stop_strings import StopStrings
from services.gateway.tokenizer import TextTokenizer
from services.gateway.tokenizing import Tokenizing
from services.gateway.validation import validate, validate_token_ids

DEFAULT_PRIORITY = 4


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that can be answered."""

    start: SubmitStart
    answer: Answer


class Admission:
    """Checks requests against the models that are attached."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        tokenizer_digest: str,
        defaults: ModelDefaults,
        directory: ModelDirectory,
        poller: DirectoryPoller,
    ) -> None:
        self._tokenizer = tokenizer
        self._tokenizer_digest = tokenizer_digest
        self._defaults = defaults
        self._directory = directory
        self._poller = poller
        self.tokenizing = Tokenizing(tokenizer)

    async def admit(self, given: GenerationInput, record: RequestRecord) -> Admitted:
        """Returns what to submit; raises the ServiceError that says what is wrong with the request."""
        with record.stage("admit"):
            validate(given)
            record.labels = given.options.labels
            model = await self.find_model(given.options.model, given.options.model_version)
            record.model = model.name
            validate_token_ids(given, model.vocabulary_size)
        assert given.prompt is not None  # validate() has seen to it
        prompt_ids = await self._tokenize(given.prompt, model, record)
        max_tokens = output_budget(len(prompt_ids), given.stop.max_tokens, model.context_tokens)
        record.usage.prompt_tokens = len(prompt_ids)
        return Admitted(self._start(given, record, prompt_ids, max_tokens), self._answer(given, model))

    async def find_model(self, name: str, version: str | None) -> ServedModel:
        """Returns the model that a request means; asks the scheduler again before it says that there is none."""
        try:
            return self._directory.find(name, version)
        except Unavailable:
            await self._poller.refresh()
            return self._directory.find(name, version)

    async def models(self) -> list[ServedModel]:
        """Lists the models that can answer, the default first; asks again before it says that there is none."""
        if not self._directory.models():
            await self._poller.refresh()
        return self._directory.models()

    async def _tokenize(self, prompt: Prompt, model: ServedModel, record: RequestRecord) -> list[int]:
        with record.stage("tokenize") as span, record.metrics.tokenize_duration.labels(model.name).time():
            prompt_ids = await self.tokenizing.encode(prompt, model.context_tokens)
            span.set_attribute("gen_ai.usage.input_tokens", len(prompt_ids))
            return prompt_ids

    def _start(
        self, given: GenerationInput, record: RequestRecord, prompt_ids: list[int], max_tokens: int
    ) -> SubmitStart:
        sampling = resolve(given.sampling, self._defaults)
        return SubmitStart(
            request_id=record.request_id,
            model=record.model,
            model_version=given.options.model_version or "",
            tenant_namespace=record.caller.namespace,
            prompt_token_ids=prompt_ids,
            sampling=SamplingParams(
                temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k, seed=sampling.seed
            ),
            seed=sampling.seed,
            max_tokens=max_tokens,
            min_tokens=min(given.stop.min_tokens or 0, max_tokens),
            stop_token_ids=given.stop.token_ids,
            ignore_eos=given.stop.ignores_eos,
            choices=1,
            priority=DEFAULT_PRIORITY if given.options.priority is None else given.options.priority,
            do_not_queue=given.options.must_not_queue,
            cache_policy=given.options.cache_policy,  # type: ignore[arg-type] # validated to be one
            tokenizer_digest=self._tokenizer_digest,
        )

    def _answer(self, given: GenerationInput, model: ServedModel) -> Answer:
        skips_special = given.output.skips_special_tokens
        hidden = set[int]() if given.stop.includes_match else set(given.stop.token_ids)
        if skips_special and not given.stop.ignores_eos:
            hidden |= model.end_token_ids
        detokenizer = Detokenizer(
            lambda token_ids: self._tokenizer.decode(token_ids, skips_special=skips_special),
            byte_token_ids=self._tokenizer.byte_token_ids,
            is_silent=lambda token_id: self._tokenizer.is_silent(token_id, skips_special=skips_special),
        )
        stop_strings = StopStrings(given.stop.strings, includes_match=given.stop.includes_match)
        return Answer(detokenizer, stop_strings, AnswerRules(given.stop.min_tokens or 0, hidden))


def new_request_id() -> str:
    """Makes an id for a request that came without one."""
    return f"req-{uuid.uuid4().hex}"
