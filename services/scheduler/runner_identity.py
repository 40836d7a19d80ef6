"""What a runner says about itself when it attaches."""

from dataclasses import dataclass

from services.scheduler.block_keys import KeyScope


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model that a runner holds."""

    name: str
    version: str
    architecture: str
    weights_digest: str
    tokenizer_digest: str
    adapter_digest: str
    context_length: int
    vocabulary_size: int
    eos_token_ids: frozenset[int]
    dtype: str


@dataclass(frozen=True, slots=True)
class KvFacts:
    """The shape of a runner's KV cache."""

    block_tokens: int
    block_count: int
    block_bytes: int
    dtype: str
    layout: str
    rope: str


@dataclass(frozen=True, slots=True)
class RunnerIdentity:
    """One runner process."""

    runner_id: str
    incarnation: str
    address: str
    model: ModelFacts
    kv: KvFacts
    step_tokens: int
    sequence_slots: int
    has_l2: bool

    @property
    def pool_tokens(self) -> int:
        """How many tokens the whole KV cache holds."""
        return self.kv.block_count * self.kv.block_tokens

    @property
    def request_tokens_limit(self) -> int:
        """The most tokens, prompt and output together, of one request."""
        return min(self.model.context_length, self.pool_tokens)

    def key_scope(self, tenant_namespace: str) -> KeyScope:
        """Returns what the keys of this runner's blocks depend on."""
        return KeyScope(
            tenant_namespace,
            self.model.weights_digest,
            self.model.tokenizer_digest,
            self.model.adapter_digest,
            self.model.dtype,
            self.kv.dtype,
            self.kv.layout,
            self.kv.rope,
            self.kv.block_tokens,
        )
