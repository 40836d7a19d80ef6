from headrace.v1 import scheduler_pb2 as _scheduler_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("version", "ready", "not_ready_reason", "open_requests", "runners", "queued_requests")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_REASON_FIELD_NUMBER: _ClassVar[int]
    OPEN_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    RUNNERS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    version: str
    ready: bool
    not_ready_reason: str
    open_requests: int
    runners: _containers.RepeatedCompositeFieldContainer[_scheduler_pb2.RunnerLoad]
    queued_requests: int
    def __init__(self, version: _Optional[str] = ..., ready: _Optional[bool] = ..., not_ready_reason: _Optional[str] = ..., open_requests: _Optional[int] = ..., runners: _Optional[_Iterable[_Union[_scheduler_pb2.RunnerLoad, _Mapping]]] = ..., queued_requests: _Optional[int] = ...) -> None: ...

class DrainRunnerRequest(_message.Message):
    __slots__ = ("runner_id",)
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    runner_id: str
    def __init__(self, runner_id: _Optional[str] = ...) -> None: ...

class DrainRunnerResponse(_message.Message):
    __slots__ = ("running_requests",)
    RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    running_requests: int
    def __init__(self, running_requests: _Optional[int] = ...) -> None: ...
