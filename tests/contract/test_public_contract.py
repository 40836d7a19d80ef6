"""The names that clients, dashboards and tests rely on: no change of a proto may lose one."""

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import Default

from headrace.v1 import admin_pb2, inference_pb2, kvstore_pb2, scheduler_pb2, step_pb2

FILES = (admin_pb2, inference_pb2, kvstore_pb2, scheduler_pb2, step_pb2)

RPCS = {
    "InferenceService": "Generate StreamGenerate> Chat StreamChat> ResumeStream> Cancel Tokenize Detokenize"
    " ListModels Explain",
    "AdminService": "GetStatus DrainRunner",
    "SchedulerService": ">Submit> >Attach> GetLoads",
    "KvStoreService": "Lookup Lease Commit GetUsage WatchBlocks>",
}

# A name ends in ? where absence differs from 0, in * where it repeats, in % where it is a map.
FIELDS = {
    "TokenIds": "ids:uint32*",
    "Conversation": "messages:Message* tools:Tool* tool_choice:ToolChoice? add_generation_prompt:bool?"
    " template_kwargs:google.protobuf.Struct?",
    "Message": "role:Role parts:Part* tool_calls:ToolCall* tool_call_id:string name:string",
    "SamplingParams": "temperature:float? top_p:float? min_p:float? typical_p:float? repetition_penalty:float?"
    " presence_penalty:float? frequency_penalty:float? top_k:int32? seed:uint64? logit_bias:LogitBiasEntry%"
    " allowed_token_ids:uint32* bad_words:string*",
    "StopCondition": "max_tokens:uint32? min_tokens:uint32? stop:string* stop_token_ids:uint32* ignore_eos:bool"
    " include_stop_in_output:bool",
    "OutputOptions": "n:uint32? logprobs:bool top_logprobs:uint32 prompt_logprobs:bool echo:bool return_token_ids:bool"
    " skip_special_tokens:bool?",
    "RequestOptions": "model:string model_version:string? priority:int32? do_not_queue:bool cache_policy:CachePolicy"
    " request_id:string labels:LabelsEntry%",
    "GenerateRequest": "prompt:Prompt? sampling:SamplingParams? stop:StopCondition? output:OutputOptions?"
    " constraint:Constraint? options:RequestOptions?",
    "ChatRequest": "conversation:Conversation? sampling:SamplingParams? stop:StopCondition? output:OutputOptions?"
    " constraint:Constraint? options:RequestOptions?",
    "Chunk": "request_id:string choice:uint32 sequence:uint64 text:string token_ids:uint32* logprobs:TokenLogprob*"
    " tool_calls:ToolCallDelta* finish_reason:FinishReason? stop_matched:string usage:Usage? timing:Timing?"
    " degradations:Degradation*",
    "Usage": "prompt_tokens:uint32 cached_tokens_l1:uint32 cached_tokens_l2:uint32 completion_tokens:uint32"
    " recomputed_tokens:uint32",
    "Timing": "queue:google.protobuf.Duration? kv_load:google.protobuf.Duration? prefill:google.protobuf.Duration?"
    " decode:google.protobuf.Duration? total:google.protobuf.Duration? time_to_first_token:google.protobuf.Duration?",
    "GenerateResponse": "request_id:string model:string model_version:string choices:Choice* usage:Usage?"
    " timing:Timing?",
    "ResumeStreamRequest": "request_id:string after_sequence:uint64?",
    "CancelRequest": "request_id:string",
    "ExplainRequest": "request_id:string",
}

ONEOFS = {
    "Prompt": "text:string token_ids:TokenIds messages:Conversation",
    "Part": "text:string",
    "Constraint": "json_schema:string regex:string lark:string choice:Constraint.Choice json_object:bool",
    "SubmitRequest": "start:SubmitStart stop:StopChoice",
    "AttachRequest": "hello:RunnerHello result:StepResult transfer:TransferResult heartbeat:Heartbeat",
    "AttachResponse": "attached:Attached plan:StepPlan",
}

ENUMS = {
    "Role": "SYSTEM DEVELOPER USER ASSISTANT TOOL",
    "FinishReason": "STOP LENGTH TOOL_CALLS CANCELLED DEADLINE ERROR",
    "CachePolicy": "READ_WRITE READ_ONLY BYPASS",
}

_TYPES = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
}


def message(name: str) -> Descriptor:
    return Default().FindMessageTypeByName(f"headrace.v1.{name}")


def type_of(field: FieldDescriptor) -> str:
    of = field.message_type or field.enum_type
    if of is None:
        return _TYPES[field.type]
    if field.message_type is not None and of.GetOptions().map_entry:
        return str(of.name)
    return str(of.full_name).removeprefix("headrace.v1.")


def described(field: FieldDescriptor) -> str:
    """Writes a field as the tables above do."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        mark = "%"
    elif field.is_repeated:
        mark = "*"
    else:
        mark = "?" if field.has_presence else ""
    return f"{field.name}:{type_of(field)}{mark}"


@pytest.mark.parametrize("service", RPCS)
def test_every_rpc_exists_with_its_streams(service):
    methods = Default().FindServiceByName(f"headrace.v1.{service}").methods
    found = {f"{'>' * m.client_streaming}{m.name}{'>' * m.server_streaming}" for m in methods}

    assert set(RPCS[service].split()) <= found


@pytest.mark.parametrize("name", FIELDS)
def test_every_public_field_exists_with_its_type_and_presence(name):
    found = {described(field) for field in message(name).fields}

    assert set(FIELDS[name].split()) <= found


@pytest.mark.parametrize("name", ONEOFS)
def test_every_alternative_exists(name):
    (oneof,) = (oneof for oneof in message(name).oneofs if not oneof.name.startswith("_"))
    found = {f"{field.name}:{type_of(field)}" for field in oneof.fields}

    assert set(ONEOFS[name].split()) <= found


@pytest.mark.parametrize("name", ENUMS)
def test_every_enum_value_exists_and_zero_means_nothing(name):
    enum = Default().FindEnumTypeByName(f"headrace.v1.{name}")
    prefix = "".join(f"_{letter}" if letter.isupper() else letter for letter in name).strip("_").upper()

    assert {f"{prefix}_{value}" for value in ENUMS[name].split()} <= set(enum.values_by_name)
    assert enum.values_by_number[0].name == f"{prefix}_UNSPECIFIED"


def test_a_zero_that_is_a_choice_of_the_client_can_be_told_from_silence():
    request = inference_pb2.GenerateRequest()
    request.sampling.temperature = 0
    request.sampling.seed = 0
    request.options.priority = 0
    back = inference_pb2.GenerateRequest.FromString(request.SerializeToString())

    assert back.sampling.HasField("temperature")
    assert back.sampling.HasField("seed")
    assert back.options.HasField("priority")
    assert not back.sampling.HasField("top_p")


def test_the_tenant_is_no_field_of_the_public_api():
    for descriptor in inference_pb2.DESCRIPTOR.message_types_by_name.values():
        assert not [field.name for field in descriptor.fields if "tenant" in field.name or "namespace" in field.name]


def test_the_step_protocol_travels_packed():
    """Integer lists are the bulk of a step; a list that is not packed costs a byte more per element."""
    for file in FILES:
        for descriptor in file.DESCRIPTOR.message_types_by_name.values():
            for field in descriptor.fields:
                if field.is_repeated and field.type in (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64):
                    assert field.is_packed, field.full_name
