"""A tiny model and a runner process on it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers
from runner_process import RunnerProcess

from services.runner.make_model import make_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a tiny random Llama."""
    return make_model("tiny-llama", tmp_path_factory.mktemp("model") / "tiny-llama")


@pytest.fixture(scope="session")
def reference(tiny_model: Path) -> transformers.PreTrainedModel:
    """Returns the same model as transformers runs it."""
    return transformers.AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)


def generate(model: transformers.PreTrainedModel, prompt: list[int], tokens: int) -> list[int]:
    """Returns the greedy continuation of a prompt."""
    ids = model.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens, eos_token_id=None
    )
    return ids[0, len(prompt) :].tolist()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Returns a folder whose sockets have names that are short enough."""
    with tempfile.TemporaryDirectory(prefix="hrr-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def runner(tiny_model: Path) -> Iterator[RunnerProcess]:
    """Returns a runner that looks for its scheduler at scheduler.sock beside its log; shared by a module's tests."""
    with tempfile.TemporaryDirectory(prefix="hrr-", dir="/tmp") as folder:
        process = RunnerProcess(Path(folder), tiny_model, f"unix:{folder}/scheduler.sock")
        yield process
        process.kill()
