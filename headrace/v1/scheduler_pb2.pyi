from headrace.v1 import generation_pb2 as _generation_pb2
from headrace.v1 import step_pb2 as _step_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitRequest(_message.Message):
    __slots__ = ("start", "stop")
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    start: SubmitStart
    stop: StopChoice
    def __init__(self, start: _Optional[_Union[SubmitStart, _Mapping]] = ..., stop: _Optional[_Union[StopChoice, _Mapping]] = ...) -> None: ...

class SubmitStart(_message.Message):
    __slots__ = ("request_id", "model", "model_version", "tenant_namespace", "prompt_token_ids", "sampling", "seed", "max_tokens", "min_tokens", "stop_token_ids", "ignore_eos", "choices", "priority", "do_not_queue", "cache_policy", "tokenizer_digest")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    TENANT_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DO_NOT_QUEUE_FIELD_NUMBER: _ClassVar[int]
    CACHE_POLICY_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    model_version: str
    tenant_namespace: str
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _generation_pb2.SamplingParams
    seed: int
    max_tokens: int
    min_tokens: int
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    ignore_eos: bool
    choices: int
    priority: int
    do_not_queue: bool
    cache_policy: _generation_pb2.CachePolicy
    tokenizer_digest: str
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., tenant_namespace: _Optional[str] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_generation_pb2.SamplingParams, _Mapping]] = ..., seed: _Optional[int] = ..., max_tokens: _Optional[int] = ..., min_tokens: _Optional[int] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., ignore_eos: _Optional[bool] = ..., choices: _Optional[int] = ..., priority: _Optional[int] = ..., do_not_queue: _Optional[bool] = ..., cache_policy: _Optional[_Union[_generation_pb2.CachePolicy, str]] = ..., tokenizer_digest: _Optional[str] = ...) -> None: ...

class StopChoice(_message.Message):
    __slots__ = ("choice",)
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    choice: int
    def __init__(self, choice: _Optional[int] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("choice", "token_ids", "finish_reason", "usage", "timing", "model", "model_version", "runner_id")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    choice: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    finish_reason: _generation_pb2.FinishReason
    usage: _generation_pb2.Usage
    timing: _generation_pb2.Timing
    model: str
    model_version: str
    runner_id: str
    def __init__(self, choice: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., finish_reason: _Optional[_Union[_generation_pb2.FinishReason, str]] = ..., usage: _Optional[_Union[_generation_pb2.Usage, _Mapping]] = ..., timing: _Optional[_Union[_generation_pb2.Timing, _Mapping]] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., runner_id: _Optional[str] = ...) -> None: ...

class GetLoadsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunnerLoad(_message.Message):
    __slots__ = ("runner_id", "incarnation", "address", "model", "running_requests", "used_blocks", "cached_blocks", "total_blocks", "block_tokens", "epoch", "request_tokens_limit", "is_draining", "is_away")
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    USED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CACHED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TOKENS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    IS_AWAY_FIELD_NUMBER: _ClassVar[int]
    runner_id: str
    incarnation: str
    address: str
    model: _step_pb2.ModelIdentity
    running_requests: int
    used_blocks: int
    cached_blocks: int
    total_blocks: int
    block_tokens: int
    epoch: int
    request_tokens_limit: int
    is_draining: bool
    is_away: bool
    def __init__(self, runner_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., model: _Optional[_Union[_step_pb2.ModelIdentity, _Mapping]] = ..., running_requests: _Optional[int] = ..., used_blocks: _Optional[int] = ..., cached_blocks: _Optional[int] = ..., total_blocks: _Optional[int] = ..., block_tokens: _Optional[int] = ..., epoch: _Optional[int] = ..., request_tokens_limit: _Optional[int] = ..., is_draining: _Optional[bool] = ..., is_away: _Optional[bool] = ...) -> None: ...

class GetLoadsResponse(_message.Message):
    __slots__ = ("runners", "queued_requests", "scheduler_id")
    RUNNERS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_ID_FIELD_NUMBER: _ClassVar[int]
    runners: _containers.RepeatedCompositeFieldContainer[RunnerLoad]
    queued_requests: int
    scheduler_id: str
    def __init__(self, runners: _Optional[_Iterable[_Union[RunnerLoad, _Mapping]]] = ..., queued_requests: _Optional[int] = ..., scheduler_id: _Optional[str] = ...) -> None: ...
