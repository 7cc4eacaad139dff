"""``strandline.settings.service``: one table of settings, read once, with readable refusals."""

import re

import pytest

from strandline.settings.service import (
    EMBED,
    EMBED_PORT,
    SERVICE_SETTINGS,
    STOP_GRACE,
    STORAGE_TYPE,
)
from strandline.settings.setting import Setting, Settings
from timeline.errors import ConfigError


def test_defaults_hold_without_options():
    settings = Settings.parse({}, SERVICE_SETTINGS)
    assert settings.get(EMBED) is True
    assert settings.get(EMBED_PORT) == 0
    assert not settings.is_set(EMBED)


def test_values_are_read_by_their_type():
    options = {EMBED.name: " False ", EMBED_PORT.name: "26754", STORAGE_TYPE.name: "memory"}
    settings = Settings.parse(options, SERVICE_SETTINGS)
    assert settings.get(EMBED) is False
    assert settings.get(EMBED_PORT) == 26754
    assert settings.get(STORAGE_TYPE) == "MEMORY"
    assert settings.is_set(EMBED)


def test_values_that_are_not_text_are_taken_too():
    settings = Settings.parse(
        {EMBED.name: False, EMBED_PORT.name: 7, STOP_GRACE.name: None}, [EMBED]
    )
    assert settings.get(EMBED) is False
    assert settings.other == {EMBED_PORT.name: "7", STOP_GRACE.name: "None"}


def test_a_refusal_names_setting_value_and_what_is_allowed(subtests):
    for setting, text, allowed in [
        (EMBED, "maybe", "true, false"),
        (EMBED_PORT, "70000", "integer, 0 to 65535"),
        (EMBED_PORT, "many", "integer, 0 to 65535"),
        (STOP_GRACE, "nan", "number in s, 0 to 60"),
        (
            STORAGE_TYPE,
            "TAPE",
            "MEMORY, SPILLABLE_DISK, EMBEDDED_KV_STORE, SQL, REMOTE_FIRST, REMOTE_ONLY",
        ),
    ]:
        with subtests.test(setting=setting, text=text):
            with pytest.raises(ConfigError) as caught:
                Settings.parse({setting.name: text}, SERVICE_SETTINGS)
            assert str(caught.value) == f"{setting.name} is {text!r}; allowed: {allowed}"


def test_secrets_are_never_shown():
    secret = Setting("strandline.some.token", 1, "A number nobody may see.", "service")
    with pytest.raises(ConfigError, match=re.escape("strandline.some.token is ***")):
        Settings.parse({secret.name: "hunter2"}, [secret])
    settings = Settings.parse({secret.name: "2"}, [secret])
    assert settings.shown([secret]) == {secret.name: {"value": "***", "from": "option"}}


def test_settings_are_shown_with_where_they_are_from():
    secret = Setting("strandline.some.options", "", "Text nobody may see.", "service", secret=True)
    path = Setting("strandline.some.token.file", "", "Where it is.", "service", secret=False)
    table = [EMBED, secret, path, STOP_GRACE]
    settings = Settings.parse({secret.name: "hunter2", path.name: "/t", EMBED.name: "no"}, table)
    assert settings.shown(table) == {
        EMBED.name: {"value": "false", "from": "option"},
        secret.name: {"value": "***", "from": "option"},
        path.name: {"value": "/t", "from": "option"},
        STOP_GRACE.name: {"value": "1.5", "from": "default"},
    }
    assert Settings({}, {}).shown([secret]) == {secret.name: {"value": "", "from": "default"}}


def test_every_setting_is_named_once_documented_and_has_an_allowed_default():
    names = [setting.name for setting in SERVICE_SETTINGS]
    assert len(set(names)) == len(names)
    for setting in SERVICE_SETTINGS:
        assert setting.name.startswith(("hoodie.", "strandline."))
        assert setting.doc.endswith(".")
        assert setting.parse(str(setting.default)) == setting.default
        assert setting.type_name
