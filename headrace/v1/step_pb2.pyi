from headrace.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransferOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSFER_OUTCOME_UNSPECIFIED: _ClassVar[TransferOutcome]
    TRANSFER_OUTCOME_DONE: _ClassVar[TransferOutcome]
    TRANSFER_OUTCOME_MISS: _ClassVar[TransferOutcome]
    TRANSFER_OUTCOME_CORRUPT: _ClassVar[TransferOutcome]
    TRANSFER_OUTCOME_TIMEOUT: _ClassVar[TransferOutcome]
    TRANSFER_OUTCOME_UNAVAILABLE: _ClassVar[TransferOutcome]
TRANSFER_OUTCOME_UNSPECIFIED: TransferOutcome
TRANSFER_OUTCOME_DONE: TransferOutcome
TRANSFER_OUTCOME_MISS: TransferOutcome
TRANSFER_OUTCOME_CORRUPT: TransferOutcome
TRANSFER_OUTCOME_TIMEOUT: TransferOutcome
TRANSFER_OUTCOME_UNAVAILABLE: TransferOutcome

class AttachRequest(_message.Message):
    __slots__ = ("hello", "result", "transfer", "heartbeat", "draining")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    hello: RunnerHello
    result: StepResult
    transfer: TransferResult
    heartbeat: Heartbeat
    draining: Draining
    def __init__(self, hello: _Optional[_Union[RunnerHello, _Mapping]] = ..., result: _Optional[_Union[StepResult, _Mapping]] = ..., transfer: _Optional[_Union[TransferResult, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., draining: _Optional[_Union[Draining, _Mapping]] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("attached", "plan")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    attached: Attached
    plan: StepPlan
    def __init__(self, attached: _Optional[_Union[Attached, _Mapping]] = ..., plan: _Optional[_Union[StepPlan, _Mapping]] = ...) -> None: ...

class ModelIdentity(_message.Message):
    __slots__ = ("name", "version", "architecture", "weights_digest", "tokenizer_digest", "adapter_digest", "context_length", "vocabulary_size", "eos_token_ids", "dtype")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    architecture: str
    weights_digest: str
    tokenizer_digest: str
    adapter_digest: str
    context_length: int
    vocabulary_size: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., architecture: _Optional[str] = ..., weights_digest: _Optional[str] = ..., tokenizer_digest: _Optional[str] = ..., adapter_digest: _Optional[str] = ..., context_length: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ...) -> None: ...

class KvLayout(_message.Message):
    __slots__ = ("block_tokens", "block_count", "block_bytes", "dtype", "layout", "rope", "sliding_window")
    BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COUNT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    ROPE_FIELD_NUMBER: _ClassVar[int]
    SLIDING_WINDOW_FIELD_NUMBER: _ClassVar[int]
    block_tokens: int
    block_count: int
    block_bytes: int
    dtype: str
    layout: str
    rope: str
    sliding_window: int
    def __init__(self, block_tokens: _Optional[int] = ..., block_count: _Optional[int] = ..., block_bytes: _Optional[int] = ..., dtype: _Optional[str] = ..., layout: _Optional[str] = ..., rope: _Optional[str] = ..., sliding_window: _Optional[int] = ...) -> None: ...

class RunnerHello(_message.Message):
    __slots__ = ("runner_id", "incarnation", "address", "model", "kv", "step_tokens", "sequence_slots", "has_l2")
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    KV_FIELD_NUMBER: _ClassVar[int]
    STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    HAS_L2_FIELD_NUMBER: _ClassVar[int]
    runner_id: str
    incarnation: str
    address: str
    model: ModelIdentity
    kv: KvLayout
    step_tokens: int
    sequence_slots: int
    has_l2: bool
    def __init__(self, runner_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., model: _Optional[_Union[ModelIdentity, _Mapping]] = ..., kv: _Optional[_Union[KvLayout, _Mapping]] = ..., step_tokens: _Optional[int] = ..., sequence_slots: _Optional[int] = ..., has_l2: _Optional[bool] = ...) -> None: ...

class Attached(_message.Message):
    __slots__ = ("epoch", "scheduler_id", "heartbeat_milliseconds")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    scheduler_id: str
    heartbeat_milliseconds: int
    def __init__(self, epoch: _Optional[int] = ..., scheduler_id: _Optional[str] = ..., heartbeat_milliseconds: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("epoch", "device")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    device: DeviceStats
    def __init__(self, epoch: _Optional[int] = ..., device: _Optional[_Union[DeviceStats, _Mapping]] = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class DeviceStats(_message.Message):
    __slots__ = ("utilization", "memory_used_bytes")
    UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    utilization: float
    memory_used_bytes: int
    def __init__(self, utilization: _Optional[float] = ..., memory_used_bytes: _Optional[int] = ...) -> None: ...

class NewSequence(_message.Message):
    __slots__ = ("slot", "request_id", "choice", "token_ids", "prompt_tokens", "computed_tokens", "block_ids", "sampling", "seed", "min_tokens", "end_token_ids", "traceparent")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    END_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    slot: int
    request_id: str
    choice: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    prompt_tokens: int
    computed_tokens: int
    block_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _generation_pb2.SamplingParams
    seed: int
    min_tokens: int
    end_token_ids: _containers.RepeatedScalarFieldContainer[int]
    traceparent: str
    def __init__(self, slot: _Optional[int] = ..., request_id: _Optional[str] = ..., choice: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., prompt_tokens: _Optional[int] = ..., computed_tokens: _Optional[int] = ..., block_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_generation_pb2.SamplingParams, _Mapping]] = ..., seed: _Optional[int] = ..., min_tokens: _Optional[int] = ..., end_token_ids: _Optional[_Iterable[int]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class SequenceWork(_message.Message):
    __slots__ = ("slot", "tokens", "new_block_ids")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NEW_BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    tokens: int
    new_block_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slot: _Optional[int] = ..., tokens: _Optional[int] = ..., new_block_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class StoredBlock(_message.Message):
    __slots__ = ("index", "block_id", "block_key")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    BLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_KEY_FIELD_NUMBER: _ClassVar[int]
    index: int
    block_id: int
    block_key: bytes
    def __init__(self, index: _Optional[int] = ..., block_id: _Optional[int] = ..., block_key: _Optional[bytes] = ...) -> None: ...

class BlockLoad(_message.Message):
    __slots__ = ("transfer_id", "value_key", "integrity_key", "blocks", "token_ids", "timeout_milliseconds", "traceparent", "request_id")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_KEY_FIELD_NUMBER: _ClassVar[int]
    INTEGRITY_KEY_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    transfer_id: int
    value_key: str
    integrity_key: bytes
    blocks: _containers.RepeatedCompositeFieldContainer[StoredBlock]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    timeout_milliseconds: int
    traceparent: str
    request_id: str
    def __init__(self, transfer_id: _Optional[int] = ..., value_key: _Optional[str] = ..., integrity_key: _Optional[bytes] = ..., blocks: _Optional[_Iterable[_Union[StoredBlock, _Mapping]]] = ..., token_ids: _Optional[_Iterable[int]] = ..., timeout_milliseconds: _Optional[int] = ..., traceparent: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class BlockPublish(_message.Message):
    __slots__ = ("transfer_id", "value_key", "integrity_key", "blocks", "token_ids", "expiry_seconds", "traceparent")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_KEY_FIELD_NUMBER: _ClassVar[int]
    INTEGRITY_KEY_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    transfer_id: int
    value_key: str
    integrity_key: bytes
    blocks: _containers.RepeatedCompositeFieldContainer[StoredBlock]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    expiry_seconds: int
    traceparent: str
    def __init__(self, transfer_id: _Optional[int] = ..., value_key: _Optional[str] = ..., integrity_key: _Optional[bytes] = ..., blocks: _Optional[_Iterable[_Union[StoredBlock, _Mapping]]] = ..., token_ids: _Optional[_Iterable[int]] = ..., expiry_seconds: _Optional[int] = ..., traceparent: _Optional[str] = ...) -> None: ...

class StepPlan(_message.Message):
    __slots__ = ("epoch", "step", "finished_slots", "new_sequences", "work", "loads", "publishes")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    FINISHED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NEW_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    step: int
    finished_slots: _containers.RepeatedScalarFieldContainer[int]
    new_sequences: _containers.RepeatedCompositeFieldContainer[NewSequence]
    work: _containers.RepeatedCompositeFieldContainer[SequenceWork]
    loads: _containers.RepeatedCompositeFieldContainer[BlockLoad]
    publishes: _containers.RepeatedCompositeFieldContainer[BlockPublish]
    def __init__(self, epoch: _Optional[int] = ..., step: _Optional[int] = ..., finished_slots: _Optional[_Iterable[int]] = ..., new_sequences: _Optional[_Iterable[_Union[NewSequence, _Mapping]]] = ..., work: _Optional[_Iterable[_Union[SequenceWork, _Mapping]]] = ..., loads: _Optional[_Iterable[_Union[BlockLoad, _Mapping]]] = ..., publishes: _Optional[_Iterable[_Union[BlockPublish, _Mapping]]] = ...) -> None: ...

class SequenceFailure(_message.Message):
    __slots__ = ("slot", "reason", "message")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    slot: int
    reason: str
    message: str
    def __init__(self, slot: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class StepStats(_message.Message):
    __slots__ = ("started_unix_nanoseconds", "prepare_nanoseconds", "forward_nanoseconds", "sample_nanoseconds", "batch_sequences", "batch_tokens")
    STARTED_UNIX_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    PREPARE_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    started_unix_nanoseconds: int
    prepare_nanoseconds: int
    forward_nanoseconds: int
    sample_nanoseconds: int
    batch_sequences: int
    batch_tokens: int
    def __init__(self, started_unix_nanoseconds: _Optional[int] = ..., prepare_nanoseconds: _Optional[int] = ..., forward_nanoseconds: _Optional[int] = ..., sample_nanoseconds: _Optional[int] = ..., batch_sequences: _Optional[int] = ..., batch_tokens: _Optional[int] = ...) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("epoch", "step", "slots", "token_ids", "failures", "stats", "device")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    step: int
    slots: _containers.RepeatedScalarFieldContainer[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    failures: _containers.RepeatedCompositeFieldContainer[SequenceFailure]
    stats: StepStats
    device: DeviceStats
    def __init__(self, epoch: _Optional[int] = ..., step: _Optional[int] = ..., slots: _Optional[_Iterable[int]] = ..., token_ids: _Optional[_Iterable[int]] = ..., failures: _Optional[_Iterable[_Union[SequenceFailure, _Mapping]]] = ..., stats: _Optional[_Union[StepStats, _Mapping]] = ..., device: _Optional[_Union[DeviceStats, _Mapping]] = ...) -> None: ...

class TransferResult(_message.Message):
    __slots__ = ("epoch", "transfer_id", "outcome", "bytes", "duration_nanoseconds", "message")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DURATION_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    transfer_id: int
    outcome: TransferOutcome
    bytes: int
    duration_nanoseconds: int
    message: str
    def __init__(self, epoch: _Optional[int] = ..., transfer_id: _Optional[int] = ..., outcome: _Optional[_Union[TransferOutcome, str]] = ..., bytes: _Optional[int] = ..., duration_nanoseconds: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
