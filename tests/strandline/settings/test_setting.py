"""A dataclass whose fields have the values of settings."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from strandline.settings.setting import Setting, Settings, declared, seconds, settings_of
from timeline.errors import ConfigError

PAUSE = Setting("part.pause_ms", 1500, "A pause.", "client", unit="ms", minimum=0)
NAME = Setting("part.name", "x", "A name.", "client")


@dataclass(frozen=True, slots=True)
class Part:
    """Values of both settings, and of none."""

    pause_s: float = PAUSE.field(seconds)
    name: str = NAME.field()
    rows: tuple[int, ...] = field(default=())


def test_fields_have_their_settings_defaults():
    assert Part() == Part(1.5, "x", ())
    assert Settings.parse({}, settings_of(Part)).read(Part) == Part()
    assert settings_of(Part) == (PAUSE, NAME)


def test_fields_are_filled_with_what_the_options_say_or_the_caller():
    values = Settings.parse({PAUSE.name: "20", NAME.name: "y"}, settings_of(Part))
    assert values.read(Part, rows=(1,)) == Part(0.02, "y", (1,))
    assert values.read(Part, name="z") == Part(0.02, "z")
    with pytest.raises(ConfigError, match=r"part\.pause_ms is '-1'; allowed: integer in ms, 0 or"):
        Settings.parse({PAUSE.name: "-1"}, settings_of(Part))


def test_a_registry_has_each_setting_of_its_modules_once():
    assert declared({"A": PAUSE, "other": 1}, {"B": PAUSE, "C": NAME}) == (PAUSE, NAME)
