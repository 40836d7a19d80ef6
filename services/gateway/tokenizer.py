"""The model's tokenizer and chat template: text to ids and back."""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.common.errors import InvalidRequest
from services.common.model_folder import ModelFolderError
from services.gateway.chat_prompt import require_free_variables, template_messages, with_one_bos
from services.gateway.control_tokens import ControlTokens
from services.gateway.limits import prompt_too_long
from services.gateway.request import ChatPrompt
from services.gateway.token_bound import longest_token_bytes
from services.gateway.validation import require_size

_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


class TextTokenizer:
    """Wraps a fast tokenizer; its calls may run in a thread, for they keep no state."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        # A saved tokenizer may cut or pad; a prompt is never changed behind its caller's back.
        self._backend.no_truncation()
        self._backend.no_padding()
        self._bos_id: int | None = tokenizer.bos_token_id
        self._adds_bos = self._bos_id is not None and self._encode("", adds_special=True)[:1] == [self._bos_id]
        self._template: str | None = tokenizer.chat_template and tokenizer.get_chat_template()
        self._control_tokens = ControlTokens(self._backend, tokenizer.unk_token_id)
        self._reserved = {*inspect.signature(tokenizer.apply_chat_template).parameters, *tokenizer.special_tokens_map}
        self._longest_token_bytes = longest_token_bytes(self._backend.to_str())
        vocabulary: dict[str, int] = self._backend.get_vocab(with_added_tokens=False)
        self.byte_token_ids = frozenset(index for token, index in vocabulary.items() if _BYTE_TOKEN.fullmatch(token))
        added: dict[int, Any] = self._backend.get_added_tokens_decoder()
        self._special_ids = frozenset(index for index, token in added.items() if token.special)
        self._known_ids = frozenset([*vocabulary.values(), *added])

    def encode_text(self, text: str, limit: int | None = None) -> list[int]:
        """Returns the ids of a text with what the tokenizer adds; over the limit it raises ContextLengthExceeded."""
        ids = self._encode(text, adds_special=True, limit=limit)
        return with_one_bos(ids, self._bos_id, adds_bos=False)

    def encode_chat(self, prompt: ChatPrompt, limit: int | None = None) -> list[int]:
        """Returns the ids of a conversation in the model's chat template, with exactly one BOS.

        Control tokens come from the template only: those that a caller writes are text.
        """
        hidden = self._control_tokens.hide(prompt, self._template or "")
        if hidden is None:
            ids = self._encode(self._render(prompt), adds_special=False, limit=limit)
        else:
            rendered = self._render(hidden.prompt)
            self._refuse_hopeless(hidden.shown(rendered), limit)
            ids = _require_room(self._control_tokens.encode(rendered, hidden), limit)
        return with_one_bos(ids, self._bos_id, adds_bos=self._adds_bos)

    def decode(self, token_ids: Sequence[int], *, skips_special: bool) -> str:
        """Returns the text of ids, as they stand: no spaces are tidied up."""
        return str(self._backend.decode(token_ids, skip_special_tokens=skips_special))

    def is_silent(self, token_id: int, *, skips_special: bool) -> bool:
        """Tells whether decoding leaves an id out: models may have more ids than their tokenizer."""
        return token_id not in self._known_ids or (skips_special and token_id in self._special_ids)

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """Returns each id's own text; a part of a character shows as the replacement character."""
        return [self.decode([token_id], skips_special=False) for token_id in token_ids]

    def _encode(self, text: str, *, adds_special: bool, limit: int | None = None) -> list[int]:
        self._refuse_hopeless(text, limit)
        # The batch call lets other threads run meanwhile, encode() does not; the fast one skips what only spans need.
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=adds_special)[0].ids
        return _require_room(ids, limit)

    def _refuse_hopeless(self, text: str, limit: int | None) -> None:
        if limit is None or self._longest_token_bytes is None:
            return
        fewest = -(-len(text.encode()) // self._longest_token_bytes)
        if fewest > limit:
            raise prompt_too_long(f"at least {fewest}", limit)

    def _render(self, prompt: ChatPrompt) -> str:
        import jinja2

        if self._template is None:
            raise InvalidRequest("prompt.messages", "this model has no chat template; send text instead")
        require_free_variables(prompt, self._reserved)
        messages = template_messages(prompt, knows_developer="developer" in self._template)
        try:
            text = str(
                self._tokenizer.apply_chat_template(
                    messages,
                    tokenize=False,
                    add_generation_prompt=prompt.add_generation_prompt,
                    **prompt.template_variables,
                )
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
            # The template is the model's and takes the caller's values: what it cannot take is the caller's to change.
            raise InvalidRequest("prompt.messages", f"the model's chat template refuses them: {error}") from error
        require_size("prompt.messages", text)
        return text


def _require_room(token_ids: list[int], limit: int | None) -> list[int]:
    if limit is not None and len(token_ids) > limit:
        raise prompt_too_long(str(len(token_ids)), limit, prompt_tokens=len(token_ids))
    return token_ids


def load_tokenizer(folder: Path) -> TextTokenizer:
    """Loads a folder's tokenizer without running code that comes with it."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelFolderError(f"the tokenizer in {folder} cannot be loaded: {first_line}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise ModelFolderError(f"{folder} has no fast tokenizer; add its tokenizer.json")
    return TextTokenizer(tokenizer)
