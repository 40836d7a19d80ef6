import dataclasses
from typing import Literal

import pytest

from services.common.config import SHARED_PREFIX, ConfigError, ProcessConfig, config_from_env


@dataclasses.dataclass(frozen=True, slots=True)
class MillConfig:
    model: str
    wheels: int = 2
    speed: float = 1.5
    is_open: bool = True
    limit: int | None = None
    listen: tuple[str, ...] = ("127.0.0.1:1",)
    floors: tuple[int, ...] = ()
    grain: Literal["wheat", "rye"] = "wheat"
    labels: tuple[str, ...] = dataclasses.field(default_factory=tuple)

    def __post_init__(self) -> None:
        if self.wheels < 1:
            raise ValueError(f"wheels is {self.wheels}; a mill has at least 1")


def read(**variables: str) -> MillConfig:
    return config_from_env(MillConfig, "MILL_", {f"MILL_{name}": text for name, text in variables.items()})


def test_what_is_not_set_keeps_its_default():
    assert read(MODEL="m") == MillConfig(model="m")


def test_every_kind_of_value_is_read():
    config = read(
        MODEL="m",
        WHEELS="3",
        SPEED="0.25",
        IS_OPEN="No",
        LIMIT="7",
        LISTEN=" a:1, b:2 ,",
        FLOORS="1,2",
        GRAIN="Rye",
    )

    assert config == MillConfig("m", 3, 0.25, False, 7, ("a:1", "b:2"), (1, 2), "rye")


def test_an_empty_optional_value_is_absent():
    assert read(MODEL="m", LIMIT="").limit is None


def test_an_empty_list_is_empty():
    assert read(MODEL="m", LISTEN="").listen == ()


def test_variables_of_others_are_left_alone():
    assert config_from_env(MillConfig, "MILL_", {"MILL_MODEL": "m", "OTHER_WHEELS": "x"}).wheels == 2


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("WHEELS", "2.5", "MILL_WHEELS='2.5' is not a whole number"),
        ("WHEELS", "", "MILL_WHEELS='' is not a whole number"),
        ("SPEED", "hot", "MILL_SPEED='hot' is not a number"),
        ("SPEED", "nan", "MILL_SPEED='nan' is not a finite number"),
        ("SPEED", "inf", "MILL_SPEED='inf' is not a finite number"),
        ("IS_OPEN", "maybe", "MILL_IS_OPEN='maybe' is not a switch; use true or false"),
        ("LIMIT", "many", "MILL_LIMIT='many' is not a whole number"),
        ("FLOORS", "1,x", "MILL_FLOORS='x' is not a whole number"),
        ("GRAIN", "oats", "MILL_GRAIN='oats' is not a choice; use wheat or rye"),
        ("WHEELS", "0", "MILL_*: wheels is 0; a mill has at least 1"),
        ("WHEELZ", "1", "MILL_WHEELZ is not a setting; did you mean MILL_WHEELS?"),
    ],
)
def test_a_bad_variable_is_named_with_what_would_be_right(variable, text, expected):
    with pytest.raises(ConfigError) as caught:
        read(MODEL="m", **{variable: text})

    assert str(caught.value) == expected


def test_an_unknown_variable_near_to_nothing_gets_the_list():
    with pytest.raises(ConfigError, match="MILL_QQQ is not a setting; known: MILL_FLOORS, MILL_GRAIN"):
        read(MODEL="m", QQQ="1")


def test_a_required_variable_is_asked_for_by_name():
    with pytest.raises(ConfigError, match=r"^MILL_MODEL is not set; there is no default for it$"):
        read(WHEELS="3")


@pytest.mark.parametrize("word", ["1", "true", "YES", " on "])
def test_words_that_switch_on(word):
    assert read(MODEL="m", IS_OPEN=word).is_open is True


@pytest.mark.parametrize("word", ["0", "False", "no", "off"])
def test_words_that_switch_off(word):
    assert read(MODEL="m", IS_OPEN=word).is_open is False


@pytest.mark.parametrize(
    ("variable", "text"),
    [("LOG_LEVEL", "loud"), ("LOG_FORMAT", "xml"), ("DRAIN_SECONDS", "-1"), ("CLUSTER_TOKEN", "naïve")],
)
def test_what_every_process_is_told_is_checked_too(variable, text):
    with pytest.raises(ConfigError, match=variable.lower() if variable in {"DRAIN_SECONDS", "CLUSTER_TOKEN"} else text):
        config_from_env(ProcessConfig, SHARED_PREFIX, {SHARED_PREFIX + variable: text})


def test_the_cluster_token_is_not_shown_where_a_configuration_is_printed():
    config = config_from_env(ProcessConfig, SHARED_PREFIX, {SHARED_PREFIX + "CLUSTER_TOKEN": "hunter2"})

    assert config.cluster_token == "hunter2"
    assert "hunter2" not in repr(config)
