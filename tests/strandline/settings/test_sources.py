"""``strandline.settings.sources``: the order of the sources, and what is refused of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.settings.command_line import (
    CONFIG,
    FLAGS,
    LOG_LEVEL,
    NO_TOKEN,
    PORT,
    ROOTS,
    SERVE_SETTINGS,
    STORAGE_OPTIONS,
)
from strandline.settings.service import EMBED_THREADS, MEMORY_BYTES, SERVICE_SETTINGS, STORAGE_TYPE
from strandline.settings.setting import REFUSAL_CHARACTERS
from strandline.settings.sources import ServeSettings, variable
from timeline.errors import ConfigError

SETTINGS = [s.name for flag in FLAGS for s in flag.settings if s is not CONFIG]
PORTS = {
    "flag": ("--port", "1"),
    "environment": ("STRANDLINE_SERVE_PORT", "2"),
    "file": ("strandline.serve.port", "3"),
    "default": ("", "26754"),
}


def read(
    tmp_path: Path,
    flags: dict[str, str | tuple[str, ...]] | None = None,
    environment: dict[str, str] | None = None,
    file: str | None = None,
) -> ServeSettings:
    if file is not None:
        (tmp_path / "settings").write_text(file, "utf-8")
        flags = {"config": str(tmp_path / "settings"), **(flags or {})}
    return ServeSettings.read(flags or {}, environment or {})


def refusal(*args: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read(*args)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("absent", range(len(PORTS)))
def test_a_flag_goes_before_a_variable_before_the_file_before_the_default(
    tmp_path: Path, absent: int
) -> None:
    """With the first ``absent`` sources gone the next one's value holds, whatever comes after."""
    given = dict(list(PORTS.items())[absent:])
    told = read(
        tmp_path,
        {"port": "1"} if "flag" in given else {},
        {"STRANDLINE_SERVE_PORT": "2", "PATH": "/bin"} if "environment" in given else {},
        "strandline.serve.port=3\n" if "file" in given else None,
    )
    source, (key, text) = next(iter(given.items()))
    assert told.get(PORT) == int(text)
    assert told.source(PORT) == source
    assert told.key(PORT).endswith(key)
    assert told.redacted()["strandline.serve.port"] == {"value": text, "from": source}


def test_what_is_overruled_is_looked_at_all_the_same(tmp_path: Path) -> None:
    said = refusal(tmp_path, {"port": "1"}, {"STRANDLINE_SERVE_PORT": "many"})
    assert said == "STRANDLINE_SERVE_PORT is 'many'; allowed: integer, 0 to 65535"
    said = refusal(tmp_path, {"port": "1"}, {}, "strandline.serve.port=-1")
    assert said.endswith("settings: strandline.serve.port is '-1'; allowed: integer, 0 to 65535")


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    (tmp_path / "settings").write_text("strandline.serve.log.level: debug\n# no more\n")
    told = read(tmp_path, {}, {"STRANDLINE_SERVE_CONFIG": str(tmp_path / "settings")})
    assert told.get(LOG_LEVEL) == "DEBUG"


def test_a_file_is_utf_8_and_may_have_javas_escapes(tmp_path: Path) -> None:
    told = read(tmp_path, file="\ufeffstrandline.serve.roots=/see/München, /see/Z\\u00fcrich\n")
    assert told.many(ROOTS) == ("/see/München", "/see/Zürich")


@pytest.mark.parametrize("data", [b"strandline.serve.roots=/\xff", b"strandline.serve.roots=\\u00"])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "settings").write_bytes(data)
    said = refusal(tmp_path, {"config": str(tmp_path / "settings")})
    assert said == f"--config {tmp_path}/settings: not Java properties in UTF-8"


@pytest.mark.parametrize(
    ("file", "environment", "said"),
    [
        (
            "strandline.serve.prot=1",
            {},
            "strandline.serve.prot is '1', but serve has no such setting (did you",
        ),
        (
            "fs.s3a.secret.key=hunter2",
            {},
            "fs.s3a.secret.key is ***, but serve has no such setting; allowed: ",
        ),
        (
            "strandline.serve.config=x",
            {},
            "strandline.serve.config is 'x', but serve has no such setting",
        ),
        # Known, but it is the writer's.
        ("hoodie.embed.timeline.server=true", {}, "hoodie.embed.timeline.server is 'true', but"),
        (
            "",
            {"STRANDLINE_PORT": "1"},
            "the variable STRANDLINE_PORT is '1', but serve has no such setting",
        ),
        (
            "",
            {"STRANDLINE_SERVE_TOKEN": "x"},
            "STRANDLINE_SERVE_TOKEN is ***, but serve has no such setting",
        ),
    ],
)
def test_what_is_no_setting_is_refused(
    tmp_path: Path, file: str, environment: dict[str, str], said: str
) -> None:
    refused = refusal(tmp_path, {}, environment, file)
    assert said in refused
    assert "allowed: " in refused
    assert "hunter2" not in refused


def test_what_kubernetes_says_of_a_service_of_our_name_is_no_setting(tmp_path: Path) -> None:
    """It sets these variables in each container unless ``enableServiceLinks`` is ``false``."""
    links = {
        "STRANDLINE_PORT": "tcp://10.0.0.7:26754",
        "STRANDLINE_PORT_26754_TCP": "tcp://10.0.0.7:26754",
        "STRANDLINE_PORT_26754_TCP_ADDR": "10.0.0.7",
        "STRANDLINE_SERVICE_HOST": "10.0.0.7",
        "STRANDLINE_SERVICE_PORT_HTTP": "26754",
        "STRANDLINE_EAST_SERVICE_PORT": "26754",
    }
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert read(tmp_path, {}, {**links, **inside}).get(PORT) == PORT.default
    for name, text in links.items():
        assert name in refusal(tmp_path, {}, {name: text})
    assert "STRANDLINE_MEMORY" in refusal(tmp_path, {}, {"STRANDLINE_MEMORY": "1", **inside})


@settings(max_examples=100)
@given(st.binary(max_size=60) | st.sampled_from(SETTINGS).map(str.encode), st.text(max_size=20))
def test_whatever_a_file_holds_it_is_refused_in_a_sentence_or_understood(
    tmp_path_factory: pytest.TempPathFactory, key: bytes, text: str
) -> None:
    config = tmp_path_factory.getbasetemp() / "any.properties"
    config.write_bytes(key + b"=" + text.encode("utf-8", "surrogatepass"))
    said = ""
    try:
        told = ServeSettings.read({"config": str(config)}, {variable(LOG_LEVEL): "info"})
    except ConfigError as error:
        said = str(error)
    else:
        assert told.get(LOG_LEVEL) == "INFO"
        assert len(told.redacted()) == len(SETTINGS) + 1
    # Beside a long value the middle of the path is cut out.
    assert not said or str(config)[:20] in said


@pytest.mark.parametrize("text", ["x" * 5_000, "é\x00" * 5_000])
def test_a_refusal_is_short_whatever_was_given_and_says_all_that_is_allowed(text: str) -> None:
    """The given value is shortened, the allowed values aren't."""
    settings = (*SERVICE_SETTINGS, *SERVE_SETTINGS)
    for setting in (s for s in settings if s.allowed or not isinstance(s.default, str)):
        with pytest.raises(ConfigError) as caught:
            setting.parse(text)
        said = str(caught.value)
        assert len(said) <= REFUSAL_CHARACTERS == 250
        assert said.startswith(f"{setting.name} is ")
        assert said.endswith(f"; allowed: {setting.describe_allowed()}")
    assert len(refusal(Path(), {}, {"STRANDLINE_" + text: text})) <= REFUSAL_CHARACTERS


def test_what_is_no_setting_is_refused_without_naming_all_that_are(tmp_path: Path) -> None:
    said = refusal(tmp_path, {}, {"STRANDLINE_SERVE_PROT": "1"})
    assert said == (
        "the variable STRANDLINE_SERVE_PROT is '1', but serve has no such setting (did you mean"
        " STRANDLINE_SERVE_PORT?); allowed: those in docs/reference.md"
    )


def test_a_number_that_must_be_large_is_shown_in_full() -> None:
    with pytest.raises(ConfigError, match=r"allowed: integer in bytes, 1048576 or more$"):
        MEMORY_BYTES.parse("7")


def test_a_nul_is_in_no_setting(tmp_path: Path) -> None:
    said = refusal(tmp_path, {}, {}, "strandline.serve.token.file=/run/\\u0000")
    assert said.endswith(
        "strandline.serve.token.file is text with a NUL; allowed: text without one"
    )


def test_flags_have_words_and_units_of_their_own(tmp_path: Path) -> None:
    told = read(tmp_path, {"storage": "RocksDB", "memory": "3", "no_token": "true"})
    assert told.get(STORAGE_TYPE) == "EMBEDDED_KV_STORE"
    assert told.get(MEMORY_BYTES) == 3 << 20
    assert told.get(NO_TOKEN) is True
    assert told.get(EMBED_THREADS) == -1


def test_a_flag_that_is_repeated_takes_commas_as_they_are(tmp_path: Path) -> None:
    assert read(tmp_path, {"root": ("/a,b", "/c")}).many(ROOTS) == ("/a,b", "/c")
    variable_of_roots = {"STRANDLINE_SERVE_ROOTS": "/a, s3://b/c"}
    assert read(tmp_path, {}, variable_of_roots).many(ROOTS) == ("/a", "s3://b/c")


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    told = read(tmp_path, file='strandline.serve.storage.options={"key": "hunter2"}')
    assert told.get(STORAGE_OPTIONS) == '{"key": "hunter2"}'
    assert "hunter2" not in str(told.redacted())
    assert told.redacted()[STORAGE_OPTIONS.name] == {"value": "***", "from": "file"}


def test_every_setting_of_a_service_has_a_flag_and_a_variable() -> None:
    """But those of the embedded service alone: the driver has them."""
    embedded = {
        "hoodie.embed.timeline.server.port",
        "strandline.embed.timeline.server.bind.address",
        "strandline.embed.timeline.server.host",
        "strandline.embed.timeline.server.linger.secs",
        "strandline.embed.timeline.server.ping.timeout.secs",
        "strandline.embed.timeline.server.ui",
        "hoodie.embed.timeline.server.reuse.enabled",
        "strandline.service.tls",
    }
    flagged = {setting.name for flag in FLAGS for setting in flag.settings}
    of_services = {s.name for s in (*SERVICE_SETTINGS, *SERVE_SETTINGS) if s.scope == "service"}
    assert flagged == of_services - embedded
    names = [variable(setting) for flag in FLAGS for setting in flag.settings]
    assert len(set(names)) == len(names)
    assert len({flag.name for flag in FLAGS}) == len(FLAGS)
    for flag in FLAGS:
        assert flag.doc.endswith(".")
        assert not flag.default or flag.text(flag.default)
