import hashlib
import json

import pytest

from services.common.config import ConfigError
from services.common.model_folder import ModelFolderError, find_model, read_config, served_name, tokenizer_digest


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "tiny"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (path / "tokenizer.json").write_text("{}")
    return path


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """An empty hub cache and no hub."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


def cause(call, *arguments, **options) -> str:
    """Returns the one line that a start-up would end with."""
    with pytest.raises(ModelFolderError) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert isinstance(caught.value, ConfigError)
    assert "\n" not in message
    return message


def test_a_local_folder_is_found(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)

    assert find_model(str(folder), with_weights=True) == folder.resolve()
    assert find_model("tiny", with_weights=True) == folder.resolve()
    assert find_model("./tiny", with_weights=False) == folder.resolve()


@pytest.mark.parametrize("model", ["/none/such", "./none", "~/none-such", "none", "a/b/c"])
def test_what_is_neither_folder_nor_hub_id_is_refused_without_asking_the_hub(model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "is not a folder; give a folder with config.json, or a hub id such as org/name" in cause(
        find_model, model, with_weights=True
    )


def test_a_file_is_not_a_folder(folder):
    assert "is not a folder" in cause(find_model, str(folder / "config.json"), with_weights=True)


def test_a_hub_id_without_a_hub_says_so(offline):
    assert cause(find_model, "org/name", with_weights=True) == (
        "org/name is neither a folder nor in the local hub cache, and the hub cannot be reached"
    )


def test_a_malformed_hub_id_says_so(offline):
    assert "cannot be downloaded" in cause(find_model, "org/na me?", with_weights=False)


def test_a_hub_id_in_the_cache_is_found_offline(offline, tmp_path):
    snapshot = tmp_path / "cache/models--org--name/snapshots/0123456789012345678901234567890123456789"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    refs = tmp_path / "cache/models--org--name/refs"
    refs.mkdir()
    (refs / "main").write_text(snapshot.name)

    assert find_model("org/name", with_weights=True) == snapshot


def test_the_served_name(folder):
    assert served_name(str(folder), "mine") == "mine"
    assert served_name(str(folder), None) == "tiny"
    assert served_name(f"{folder}/", "") == "tiny"
    assert served_name("org/name", None) == "org/name"


def test_a_configuration_is_read(folder):
    assert read_config(folder) == {"architectures": ["LlamaForCausalLM"]}


def test_a_folder_without_configuration_is_not_a_model(folder):
    (folder / "config.json").unlink()

    assert cause(read_config, folder) == f"{folder} has no config.json; it is not a model folder"


@pytest.mark.parametrize(
    "content", [b"{", b"", b"\xff\xfe", b"[" * 100_000, b"{'a': 1}"], ids=["cut", "empty", "binary", "deep", "python"]
)
def test_a_broken_configuration_is_named(folder, content):
    (folder / "config.json").write_bytes(content)

    assert cause(read_config, folder).startswith(f"{folder}/config.json cannot be read: ")


@pytest.mark.parametrize("content", ["[]", "null", "3", '"x"'])
def test_a_configuration_that_is_no_object_is_refused(folder, content):
    (folder / "config.json").write_text(content)

    assert cause(read_config, folder) == f"{folder}/config.json does not hold a JSON object"


def test_a_configuration_that_is_a_folder_is_refused(folder):
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()

    assert "cannot be read" in cause(read_config, folder)


def test_a_model_that_brings_code_is_refused(folder):
    (folder / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "evil.Model"}}))

    assert "auto_map" in cause(read_config, folder)


def test_a_folder_without_tokenizer_is_refused(folder):
    (folder / "tokenizer.json").unlink()

    assert cause(tokenizer_digest, folder) == f"{folder} has no tokenizer files; copy tokenizer.json there"


def test_the_tokenizer_digest_covers_names_and_contents(folder, tmp_path):
    before = tokenizer_digest(folder)
    assert len(bytes.fromhex(before)) == hashlib.sha256().digest_size

    (folder / "README.md").write_text("of no meaning")
    assert tokenizer_digest(folder) == before
    (folder / "tokenizer_config.json").write_text("{}")
    with_config = tokenizer_digest(folder)
    assert with_config != before
    (folder / "tokenizer.json").write_text("{} ")
    assert tokenizer_digest(folder) != with_config


def test_equal_tokenizers_have_one_digest_wherever_they_are(folder, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "tokenizer.json").write_text("{}")

    assert tokenizer_digest(copy) == tokenizer_digest(folder)
