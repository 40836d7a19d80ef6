from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LookupRequest(_message.Message):
    __slots__ = ("tenant_namespace", "block_keys")
    TENANT_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_KEYS_FIELD_NUMBER: _ClassVar[int]
    tenant_namespace: str
    block_keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, tenant_namespace: _Optional[str] = ..., block_keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class StoredRun(_message.Message):
    __slots__ = ("value_key", "first_index", "blocks")
    VALUE_KEY_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    value_key: str
    first_index: int
    blocks: int
    def __init__(self, value_key: _Optional[str] = ..., first_index: _Optional[int] = ..., blocks: _Optional[int] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("runs", "integrity_key", "degraded_reason")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    INTEGRITY_KEY_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_REASON_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[StoredRun]
    integrity_key: bytes
    degraded_reason: str
    def __init__(self, runs: _Optional[_Iterable[_Union[StoredRun, _Mapping]]] = ..., integrity_key: _Optional[bytes] = ..., degraded_reason: _Optional[str] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("tenant_namespace", "block_keys", "block_bytes", "runner_id")
    TENANT_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_KEYS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    tenant_namespace: str
    block_keys: _containers.RepeatedScalarFieldContainer[bytes]
    block_bytes: int
    runner_id: str
    def __init__(self, tenant_namespace: _Optional[str] = ..., block_keys: _Optional[_Iterable[bytes]] = ..., block_bytes: _Optional[int] = ..., runner_id: _Optional[str] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("lease_id", "value_key", "first_block", "blocks", "value_expiry_seconds", "lease_milliseconds")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_KEY_FIELD_NUMBER: _ClassVar[int]
    FIRST_BLOCK_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    VALUE_EXPIRY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    value_key: str
    first_block: int
    blocks: int
    value_expiry_seconds: int
    lease_milliseconds: int
    def __init__(self, lease_id: _Optional[int] = ..., value_key: _Optional[str] = ..., first_block: _Optional[int] = ..., blocks: _Optional[int] = ..., value_expiry_seconds: _Optional[int] = ..., lease_milliseconds: _Optional[int] = ...) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("grants", "integrity_key", "degraded_reason")
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    INTEGRITY_KEY_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_REASON_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    integrity_key: bytes
    degraded_reason: str
    def __init__(self, grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., integrity_key: _Optional[bytes] = ..., degraded_reason: _Optional[str] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("lease_id", "is_stored", "stored_bytes")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_STORED_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    is_stored: bool
    stored_bytes: int
    def __init__(self, lease_id: _Optional[int] = ..., is_stored: _Optional[bool] = ..., stored_bytes: _Optional[int] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("is_visible",)
    IS_VISIBLE_FIELD_NUMBER: _ClassVar[int]
    is_visible: bool
    def __init__(self, is_visible: _Optional[bool] = ...) -> None: ...

class GetUsageRequest(_message.Message):
    __slots__ = ("tenant_namespace",)
    TENANT_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    tenant_namespace: str
    def __init__(self, tenant_namespace: _Optional[str] = ...) -> None: ...

class GetUsageResponse(_message.Message):
    __slots__ = ("blocks", "bytes", "values")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    blocks: int
    bytes: int
    values: int
    def __init__(self, blocks: _Optional[int] = ..., bytes: _Optional[int] = ..., values: _Optional[int] = ...) -> None: ...

class WatchBlocksRequest(_message.Message):
    __slots__ = ("after_sequence",)
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    after_sequence: int
    def __init__(self, after_sequence: _Optional[int] = ...) -> None: ...

class WatchBlocksResponse(_message.Message):
    __slots__ = ("sequence", "added_block_keys", "removed_block_keys")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ADDED_BLOCK_KEYS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_BLOCK_KEYS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    added_block_keys: _containers.RepeatedScalarFieldContainer[bytes]
    removed_block_keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, sequence: _Optional[int] = ..., added_block_keys: _Optional[_Iterable[bytes]] = ..., removed_block_keys: _Optional[_Iterable[bytes]] = ...) -> None: ...
