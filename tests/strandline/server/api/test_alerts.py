"""Alert rules and dashboard in `examples/`: what they ask for is what a server answers.

`tox -e promtool` has Prometheus check their syntax, and which events fire them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.reference import metrics
from tests.strandline.server.api.promtool import (
    EXAMPLES,
    STRANGE,
    alerts,
    dashboard_expressions,
    panels,
    scrape_of_a_fleet,
)

EXPRESSIONS = [*(rule["expr"] for rule in alerts()), *dashboard_expressions()]
OF_A_SCRAPER = {"instance", "job", "le"}
"""Labels that Prometheus adds, and that of histograms."""


@pytest.mark.property
def test_every_metric_of_rules_and_dashboard_is_in_a_scrape_of_a_server(tmp_path: Path) -> None:
    scrape = scrape_of_a_fleet(tmp_path).decode()
    found = {family.name: family for family in text_string_to_metric_families(scrape)}
    names = {line.split()[2] for line in scrape.splitlines() if line.startswith("# TYPE")}
    asked = {name for each in EXPRESSIONS for name in names_in(each)}
    assert len(asked) > 40
    assert {name for name in asked if bare(name) not in names} == set()
    labels = [s.labels["table"] for s in found["strandline_requests"].samples]
    assert any(label.endswith(STRANGE) for label in labels)


def names_in(expression: str) -> list[str]:
    return re.findall(r"\b((?:strandline|process)_\w+)", expression)


def bare(name: str) -> str:
    return re.sub(r"_(bucket|count|sum)$", "", name)


def test_labels_that_they_select_or_group_by_exist(subtests: pytest.Subtests) -> None:
    labels: dict[str, set[str]] = {}
    for family in metrics():
        names = set(getattr(family, "_labelnames", ()))
        labels[family.name] = labels[f"{family.name}_total"] = names
    for expression in EXPRESSIONS:
        with subtests.test(expression=expression):
            of_names = [labels.get(bare(name), set()) for name in names_in(expression)]
            known = OF_A_SCRAPER.union(*of_names)
            grouped = re.findall(r"\b(?:by|on|ignoring) \(([\w, ]*)\)", expression)
            selected = re.findall(r"(\w+)(?:=~|!=|!~|=)\"", expression)
            asked = {label.strip() for group in grouped for label in group.split(",")}
            assert asked | set(selected) <= known


def test_the_first_event_of_a_series_counts(subtests: pytest.Subtests) -> None:
    """Series with such labels begin with their first event, of which `increase` sees nothing."""
    for expression in (each for each in EXPRESSIONS if born_late(each)):
        with subtests.test(expression=expression):
            for series, window in re.findall(r"\bincrease\((.*?)\[(\w+)\]\)", expression):
                born = f"({series} unless {series} offset {window}) or increase({series}[{window}])"
                assert born in " ".join(expression.split())


def born_late(expression: str) -> bool:
    names = "refusals|sync_failures|checks|reloads"
    return re.search(rf"increase\(strandline_({names})_total", expression) is not None


def test_what_they_name_is_explained() -> None:
    for rule in alerts():
        assert rule["alert"].startswith("Strandline"), rule
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, rule
        used = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        grouped = re.findall(r"\bby \(([\w, ]*)\)", rule["expr"])
        for label in used:
            assert not grouped or any(label in group for group in grouped), rule
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        lines = (EXAMPLES.parent / page).read_text("utf-8").splitlines()
        assert f"### {anchor.replace('-', ' ').capitalize()}" in lines, rule
    assert len({panel["title"] for panel in panels()}) == len(panels()) > 20
