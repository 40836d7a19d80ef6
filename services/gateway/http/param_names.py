"""What a request field of the gRPC API is called in the JSON body that it came from."""

import re
from dataclasses import dataclass

_GROUPS = ("sampling", "stop", "output", "options", "constraint")
_RENAMED = {"constraint": "response_format"}


@dataclass(frozen=True, slots=True)
class ParamNames:
    """The names that one request used where JSON has several or another one."""

    prompt: str = "prompt"
    max_tokens: str = "max_tokens"

    def of_field(self, field: str) -> str:
        """Translates a field path ("sampling.top_p", "prompt.token_ids[3]") into a parameter's name."""
        head, _, rest = field.partition(".")
        if re.sub(r"\[\d+\]", "", head) in ("prompt", "conversation", "messages"):
            return self._of_prompt(field)
        name = rest if head in _GROUPS and rest else head
        if name == "max_tokens":
            return self.max_tokens
        return _RENAMED.get(name, name)

    def of_resource(self, resource: tuple[str, str] | None) -> str | None:
        """Names the parameter that asked for something that does not exist."""
        return "model" if resource is not None and resource[0] == "model" else None

    def _of_prompt(self, field: str) -> str:
        message = re.search(r"messages\[(\d+)\]", field)
        if message is not None and self.prompt == "messages":
            return f"messages[{message[1]}]"
        index = re.search(r"\[(\d+)\]$", field)
        return f"{self.prompt}[{index[1]}]" if index is not None and self.prompt == "prompt" else self.prompt
