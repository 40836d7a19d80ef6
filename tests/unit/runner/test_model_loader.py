"""A folder that cannot be served is refused with one line that names the cause."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from services.common.model_folder import ModelFolderError, find_model
from services.runner.fast_linear import PackedLinear, SharedLinear, use_fast_linears
from services.runner.kv_pool import KvPool, PoolLayout
from services.runner.load_progress import LoadingStopped, LoadProgress
from services.runner.model_loader import LoadedModel, load_model
from services.runner.self_check import check_model
from services.runner.weight_files import digest_weights, find_weight_files

CPU = torch.device("cpu")


def load(folder: Path) -> LoadedModel:
    """Loads without watching."""
    return load_model(folder, torch.float32, CPU, lambda _: None)


@pytest.fixture
def folder(model_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    """Returns a copy that a test may spoil."""
    return Path(shutil.copytree(model_folder("tiny-qwen2"), tmp_path / "model"))


def change_config(folder: Path, **settings: Any) -> None:
    """Overwrites settings of config.json; None removes one."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | settings
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


def cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def overwrite(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"not safetensors at all")


def make_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")


def pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def drop_tensor(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def reshape_tensor(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors["model.norm.weight"] = torch.ones(7)
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def lose_shard(folder: Path) -> None:
    index = {
        "metadata": {},
        "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")


def escape_folder(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../other.safetensors"}}))


BAD_FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    "config is no JSON": (lambda folder: (folder / "config.json").write_text("{"), "cannot be read"),
    "code of its own": (lambda folder: change_config(folder, auto_map={"AutoModel": "x.Y"}), "auto_map"),
    "unknown type": (lambda folder: change_config(folder, model_type="nonesuch"), "no causal LM of that type"),
    "no type": (lambda folder: change_config(folder, model_type=None), "no causal LM of that type"),
    "an encoder": (lambda folder: change_config(folder, architectures=["BertForMaskedLM"]), "not a causal LM"),
    "quantized": (lambda folder: change_config(folder, quantization_config={"quant_method": "gptq"}), "quantized"),
    "own attention": (
        lambda folder: change_config(folder, model_type="bloom", architectures=["BloomForCausalLM"]),
        "_supports_attention_backend",
    ),
    "other layers": (
        lambda folder: change_config(folder, layer_types=["full_attention", "linear_attention", "full_attention"]),
        "linear_attention",
    ),
    "pickled weights": (pickle_only, "pytorch_model.bin only"),
    "no weights": (no_weights, "no weights"),
    "weights cut off": (cut_off, "copy it again"),
    "weights of another kind": (overwrite, "not a safetensors file"),
    "a pointer to the weights": (make_pointer, "git lfs pull"),
    "a weight is missing": (drop_tensor, "up_proj.weight"),
    "a weight of a wrong shape": (reshape_tensor, "cannot be loaded"),
    "a shard is missing": (lose_shard, "model-00002-of-00002.safetensors"),
    "weights elsewhere": (escape_folder, "outside its folder"),
}


@pytest.mark.parametrize(("spoil", "cause"), BAD_FOLDERS.values(), ids=BAD_FOLDERS)
def test_a_folder_that_cannot_be_served_is_refused_in_one_line(
    spoil: Callable[[Path], object], cause: str, folder: Path
) -> None:
    spoil(folder)
    with pytest.raises(ModelFolderError, match=cause.replace(".", r"\.")) as refusal:
        load(folder)
    assert "\n" not in str(refusal.value)


def test_a_path_that_is_no_folder_is_refused() -> None:
    with pytest.raises(ModelFolderError, match="is not a folder"):
        find_model("/nonexistent/model", with_weights=True)


def test_a_model_whose_scores_are_not_finite_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors["model.norm.weight"] *= float("nan")
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ModelFolderError, match="not finite numbers"):
        check(load(folder))


def test_an_architecture_that_computes_something_else_through_the_pool_is_refused(tmp_path: Path) -> None:
    """An encoder sees later tokens, which a cache of earlier ones cannot give it."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        is_decoder=False,
        initializer_range=0.2,
    )
    config.architectures = ["BertLMHeadModel"]
    transformers.BertLMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(ModelFolderError, match="not supported"):
        check(load(tmp_path))


@pytest.mark.parametrize("kind", ["tiny-llama", "tiny-gemma2", "tiny-gpt-neox", "tiny-mistral"])
def test_a_sound_model_passes_the_check(kind: str, loaded_model: Callable[[str], LoadedModel]) -> None:
    check(loaded_model(kind))


def test_attention_sinks_and_latent_attention_pass_the_check(tmp_path: Path) -> None:
    """Keys and values of different sizes, and a softmax with one more column."""
    import transformers

    small = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    small |= {"max_position_embeddings": 128, "pad_token_id": 0}
    sinks = transformers.GptOssConfig(
        **small, head_dim=8, num_key_value_heads=2, num_local_experts=4, intermediate_size=32, sliding_window=8
    )
    latent = transformers.DeepseekV2Config(
        **small, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=12,
        num_key_value_heads=4, intermediate_size=32, first_k_dense_replace=2,
    )  # fmt: skip
    for name, config in (("sinks", sinks), ("latent", latent)):
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(tmp_path / name)
        check(load(tmp_path / name))


def check(model: LoadedModel) -> None:
    """Runs the check at start."""
    check_model(model.module, KvPool(model.layers, PoolLayout(16, 8, torch.float32, CPU)), model.vocabulary_size)


def test_facts_of_a_model_are_read_from_its_folder(loaded_model: Callable[[str], LoadedModel]) -> None:
    model = loaded_model("tiny-mistral")
    assert (model.context_length, model.vocabulary_size, model.smallest_window) == (256, 320, 24)
    assert model.eos_token_ids == (317, 319)
    assert [(shape.kv_heads, shape.key_size) for shape in model.layers] == [(2, 16)] * 3


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_the_context_ends_where_rotary_frequencies_would_change(kind: str, folder: Path) -> None:
    """A change in mid-sequence would make every cached key wrong, for all neighbours in the batch too."""
    rope: dict[str, Any] = {
        "rope_type": kind,
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    change_config(folder, rope_parameters=rope)
    assert load(folder).context_length == 64


def test_every_change_of_weights_or_settings_changes_the_digest(folder: Path) -> None:
    """KV-6."""
    files = find_weight_files(folder)
    config = json.loads((folder / "config.json").read_text())
    steps: list[float] = []
    digest = digest_weights(files, config, steps.append)
    assert digest_weights(files, config | {"transformers_version": "9"}, lambda _: None) == digest
    assert digest_weights(files, config | {"rms_norm_eps": 0.1}, lambda _: None) != digest
    content = bytearray(files[0].read_bytes())
    content[-1] ^= 1
    files[0].write_bytes(content)
    assert digest_weights(files, config, lambda _: None) != digest
    assert steps[-1] == 1.0


def test_loading_reports_progress_and_can_be_stopped(folder: Path) -> None:
    steps: list[float] = []
    load_model(folder, torch.float32, CPU, steps.append)
    assert steps == sorted(steps)
    assert steps[-1] == 1.0
    progress = LoadProgress("model")
    progress.stop()
    with pytest.raises(LoadingStopped):
        load_model(folder, torch.float32, CPU, progress.part(0, 60))


def test_every_linear_layer_has_a_quick_form_and_no_weight_is_kept_twice(model_folder: Callable[[str], Path]) -> None:
    module = load(model_folder("tiny-llama")).module
    before = {
        name: layer.weight.clone() for name, layer in module.named_modules() if isinstance(layer, torch.nn.Linear)
    }
    use_fast_linears(module)
    quick = {name: layer for name, layer in module.named_modules() if isinstance(layer, PackedLinear | SharedLinear)}
    assert quick.keys() == before.keys()
    assert isinstance(quick["lm_head"], SharedLinear)
    assert quick["lm_head"].weight is module.get_input_embeddings().weight
    assert not any("_proj" in name for name, _ in module.named_parameters())
    for rows in (0, 1, 5, 100):
        inputs = torch.randn(1, rows, 64)
        for name in ("lm_head", "model.layers.0.mlp.gate_proj"):
            expected = torch.nn.functional.linear(inputs, before[name])
            torch.testing.assert_close(quick[name](inputs), expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(quick[name].weight, before[name], rtol=0, atol=0)
