"""The figures of a running service: their names keep Prometheus' conventions, and whatever is written about
them (alert rules, dashboard, README, docs) names figures that there are."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.api.metrics import Metrics
from orchestrator.client import VigilClient
from tests.cluster.members import Member
from tests.fakes.ears import ScriptedTranscriber, ears
from tests.fakes.engine import FakeEngine
from tests.fakes.postgres import PrivatePostgres
from tests.fakes.receiver import FakeReceiver
from tests.fakes.solver import FakeSolver
from tests.native.serving import NativeServed, reference
from tests.realtime.talker import Talker
from tests.realtime.test_voice_away import nobody
from tests.store.conftest import postgres

__all__ = ["postgres"]

ROOT = Path(__file__).parents[1]
RULES = ROOT / "deploy/alerts.yaml"
DASHBOARD = ROOT / "deploy/dashboard.json"
WRITTEN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

LABELS = {
    "action", "code", "engine", "kind", "le", "outcome", "path", "reason", "route", "solver", "state",
    "status", "tenant", "version",
}  # fmt: skip
ENDS = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_count", "_sum"),
    "summary": ("_count", "_sum"),
}
UNITS = ("seconds", "bytes", "ratio")
ABBREVIATED = re.compile(r"_(s|ms|us|sec|secs|msec|b|kb|mb|pct|percent|num|cnt)(_|$)")


@dataclass(frozen=True)
class Exposed:
    """What ``/metrics`` told an operator: a watching service with everything on, and a full-duplex one."""

    texts: tuple[str, ...]
    ids: tuple[str, ...]

    def families(self) -> Iterator[Metric]:
        for text in self.texts:
            yield from text_string_to_metric_families(text)

    def names(self) -> set[str]:
        """Also of those that have counted nothing yet."""
        found = set[str]()
        for family in self.families():
            found |= {family.name + end for end in ENDS.get(family.type, ("",))}
            assert {sample.name for sample in family.samples} <= found
        return found


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory, postgres: PrivatePostgres) -> Exposed:
    folders = [tmp_path_factory.mktemp(name) for name in ("watching", "native")]

    async def both() -> Exposed:
        watching, native = await _watching(folders[0], postgres), await _native(folders[1])
        return Exposed((watching[0], native[0]), (watching[1], native[1]))

    return asyncio.run(both())


async def _watching(folder: Path, postgres: PrivatePostgres) -> tuple[str, str]:
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(FakeEngine(["</silence>"], image_tokens=16))
        solver = await stack.enter_async_context(FakeSolver(["Vermeer."]))
        receiver = await stack.enter_async_context(FakeReceiver())
        served = await stack.enter_async_context(
            Member(
                engine,
                folder,
                postgres.empty_database(),
                ears=ears(ScriptedTranscriber("hello")),
                voice={"bridge": "openai", "url": nobody(), "model": "tts"},
                solvers=[{"name": "words", "url": solver.url, "model": solver.model}],
                summarizer={"url": engine.url, "model": engine.model},
                tracing={"endpoint": nobody()},
                webhook={"url": receiver.url, "secret": "a secret of some length"},
            )
        )
        await stack.enter_async_context(Talker(served.url, opening={}))
        for second in range(3):
            assert (await served.see(second, "Say." if second == 0 else None)).status_code == 200
        session = (await served.client.get("/v1/sessions/cam")).json()["id"]
        return (await served.client.get("/metrics")).text, session


async def _native(folder: Path) -> tuple[str, str]:
    async with (
        NativeServed(folder) as served,
        VigilClient(
            served.url, session={"modalities": ["audio", "text"], "ref_audio": reference()}
        ) as client,
    ):
        return (await served.client.get("/metrics")).text, client.session_id


def test_names_keep_the_conventions(exposed: Exposed) -> None:
    for family in exposed.families():
        name = family.name
        assert re.fullmatch(r"(vigil|process)(_[a-z][a-z0-9]*)+", name), name
        assert not ABBREVIATED.search(name), name
        for unit in UNITS:
            assert f"_{unit}_" not in name, f"{name}: the unit comes last"
        assert len(family.documentation.split()) > 1, f"{name} does not say what it is"
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            timed = family.type in ("histogram", "summary")
            assert timed or not sample.name.endswith(("_count", "_sum", "_bucket")), name
            assert set(sample.labels) <= LABELS, (name, sample.labels)


def test_no_figure_comes_twice_and_counts_are_whole(exposed: Exposed) -> None:
    for text in exposed.texts:
        names = re.findall(r"^# TYPE (\S+)", text, re.M)
        assert len(set(names)) == len(names)
    assert {family.type for family in exposed.families()} == {"counter", "gauge", "histogram", "summary"}


def test_no_ids_are_told(exposed: Exposed) -> None:
    for text, session in zip(exposed.texts, exposed.ids, strict=True):
        assert session and session not in text
        values = {value for family in text_string_to_metric_families(text) for s in family.samples
                  for value in s.labels.values()}  # fmt: skip
        assert not [value for value in values if re.search(r"[0-9a-f]{12}", value)]


def test_promtool_finds_nothing_to_say(exposed: Exposed) -> None:
    for text in exposed.texts:
        done = promtool("check", "metrics", given=text)
        assert done.returncode == 0 and not done.stderr, done.stderr


# --- what is written about them -------------------------------------------------------------------------


def rules() -> list[dict[str, str]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> dict[str, list[str]]:
    shown = json.loads(DASHBOARD.read_text())["panels"]
    return {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in shown}


def named(text: str) -> set[str]:
    return set(re.findall(r"\b(?:vigil|process)_[a-z0-9_]*[a-z0-9]\b", text))


def test_whatever_is_named_is_there(exposed: Exposed) -> None:
    known = exposed.names()
    told = {rule["alert"]: f"{rule['expr']} {rule['annotations']}" for rule in rules()}  # type: ignore[index]
    told |= {title: " ".join(expressions) for title, expressions in panels().items()}
    for name_of, text in told.items():
        assert named(text) or name_of == "VigilDown", name_of
    for name_of, text in told.items():
        assert named(text) <= known, (name_of, named(text) - known)
    known |= {family.name for family in exposed.families() if family.type in ("histogram", "summary")}
    told = {path.name: path.read_text() for path in WRITTEN}
    assert named(told["operations.md"])
    for name_of, text in told.items():
        assert named(text) <= known, (name_of, named(text) - known)


def test_every_figure_is_explained(exposed: Exposed) -> None:
    told = named((ROOT / "docs/operations.md").read_text())
    there = {family.name + ("_total" if family.type == "counter" else "") for family in exposed.families()}
    assert there - told == set()


SELECTED = re.compile(r"\b((?:vigil|process)_\w+|up)(?:\{([^}]*)\})?(\[\w+\])?")
GROUPED = re.compile(r"(\w+) by \(([^)]*)\) \(")
SCRAPED = {"instance", "job"}
"""Labels that a scrape adds."""


@pytest.fixture(scope="module")
def labels(exposed: Exposed) -> dict[str, set[str]]:
    """Of every sample, also of what has counted nothing yet."""
    found = {name: set[str]() for name in exposed.names()}
    for metric in Metrics()._registry._names_to_collectors.values():
        for name in (f"{metric._name}{end}" for end in ("_total", "_bucket", "_count", "_sum")):  # type: ignore[attr-defined]
            if name in found:
                found[name] |= set(getattr(metric, "_labelnames", ()))
    for family in exposed.families():
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found | {"up": set()}


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [each for told in panels().values() for each in told]


def left(expression: str, labels: dict[str, set[str]]) -> set[str]:
    """Labels that tell apart what an expression comes to."""
    groups = GROUPED.findall(expression)
    if groups:
        kept = set(re.split(r",\s*", groups[0][1]))
    elif re.search(r"\bsum\(", expression):
        kept = set()
    else:
        kept = {"instance"}.union(*(labels[name] for name, *_ in SELECTED.findall(expression)))
    return kept - {"le"}


@pytest.mark.parametrize("expression", expressions())
def test_expressions_name_labels_that_there_are_and_treat_each_figure_as_what_it_is(
    expression: str, labels: dict[str, set[str]]
) -> None:
    selected = SELECTED.findall(expression)
    assert selected
    there = SCRAPED.union(*(labels[name] for name, *_ in selected))
    for _, by in GROUPED.findall(expression):
        assert set(re.split(r",\s*", by)) <= there
    for name, matchers, span in selected:
        for label in re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", matchers):
            assert label in labels[name] | SCRAPED, (name, label)
        grows = name.endswith(("_total", "_bucket", "_count", "_sum"))
        assert bool(span) == grows, f"{name}: how fast it grows is asked of what only grows, and nothing else"
        asked = re.search(rf"(\w+)\({name}\b", expression)
        assert not grows or (asked and asked[1] in ("rate", "increase")), name
        if name.endswith("_bucket"):
            assert "le" in labels[name]
            assert re.search(
                rf"histogram_quantile\(0\.\d+, sum by \([^)]*\ble\b[^)]*\) \(rate\({name}", expression
            )
    assert ("histogram_quantile" in expression) == any(name.endswith("_bucket") for name, *_ in selected)


def test_what_an_alert_says_of_its_labels_is_known_to_it(labels: dict[str, set[str]]) -> None:
    for rule in rules():
        told = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert told <= left(rule["expr"], labels), rule["alert"]
    assert all(rule["alert"].startswith("Vigil") for rule in rules())
    assert len({rule["alert"] for rule in rules()}) == len(rules())


def test_a_panel_names_each_line_and_has_its_unit(labels: dict[str, set[str]]) -> None:
    """Several processes, which have the same engines, are no two lines of one name."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        unit, lines = panel["fieldConfig"]["defaults"]["unit"], set[str]()
        for target in panel["targets"]:
            expression, legend = target["expr"], target["legendFormat"]
            assert set(re.findall(r"\{\{(\w+)\}\}", legend)) == left(expression, labels), (
                panel["title"],
                legend,
            )
            lines.add(legend)
            assert unit == unit_of(expression), (panel["title"], expression)
        assert len(lines) == len(panel["targets"])


def unit_of(expression: str) -> str:
    """As Grafana names it."""
    names = [name for name, *_ in SELECTED.findall(expression)]
    if "histogram_quantile" in expression:
        return "s" if all("_seconds_" in name for name in names) else "short"
    if names == [f"{names[0].removesuffix('_sum')}{end}" for end in ("_sum", "_count")]:  # a mean
        return "s" if "_seconds_" in names[0] else "short"
    if " / " in expression or all(name.endswith("_ratio") for name in names):
        return "percentunit"
    if all(name.endswith("_bytes") for name in names):
        return "bytes"
    if "rate(" in expression and not any("_seconds_" in name or "_tokens_" in name for name in names):
        return "ops"
    return "short"


def test_every_alert_is_explained_to_who_is_woken() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    assert [rule["alert"] for rule in rules() if rule["alert"] not in text] == []


# --- what they do ---------------------------------------------------------------------------------------

BAD: dict[str, dict[str, str]] = {
    "VigilDown": {'up{job="vigil",instance="a"}': "0x80"},
    "VigilEngineDown": {'vigil_engine_up{engine="e"}': "0x80"},
    "VigilNotReady": {"vigil_engine_ready": "0x80"},
    "VigilLate": {'vigil_engine_lateness_periods{engine="e"}': "1.2x80"},
    "VigilBehindRealTime": {'vigil_engine_real_time_factor{engine="e"}': "1.1x80"},
    "VigilCacheTooSmall": {'vigil_engine_reuse_ratio{engine="e"}': "0.7x80"},
    "VigilTicksFail": {
        'vigil_tick_failures_total{code="engine_timeout",engine="e",instance="a"}': "0+1x80",
        'vigil_ticks_total{action="silence",reason="model",instance="a"}': "0+15x80",
    },
    "VigilRefusesSessions": {'vigil_sessions_refused_total{reason="engines",instance="a"}': "0+1x80"},
    "VigilStoreSlow": {
        'vigil_store_write_seconds_bucket{le="1",instance="a"}': "0+1x80",
        'vigil_store_write_seconds_bucket{le="5",instance="a"}': "0+9x80",
        'vigil_store_write_seconds_bucket{le="+Inf",instance="a"}': "0+9x80",
    },
    "VigilStoreFails": {'vigil_store_failures_total{instance="a"}': "0x70 1x10"},
    "VigilOwnerLate": {
        'vigil_leases_lost_total{instance="a"}': "0x80",
        'vigil_heartbeats_late_total{instance="a"}': "0x70 1x10",
    },
    "VigilWebhookLate": {"vigil_webhook_late_seconds": "61+15x80"},
}
"""What makes each alert fire within 20 minutes, a value every 15 s."""
ALSO_BAD = [
    (
        "VigilTicksFail",
        {'vigil_tick_failures_total{code="engine_timeout",engine="e",instance="a"}': "0+1x80"},
    ),
]
"""Where none was answered since the start, what counts answers is not there."""
BRIEF = {
    'up{job="vigil",instance="a"}': "1x74 0x1 1x5",
    'vigil_engine_up{engine="e"}': "1x74 0x1 1x5",
    "vigil_engine_ready": "1x74 0x1 1x5",
    'vigil_engine_lateness_periods{engine="e"}': "0.1x72 3x3 0.1x5",
    'vigil_engine_real_time_factor{engine="e"}': "0.1x72 3x3 0.1x5",
    'vigil_engine_reuse_ratio{engine="e"}': "1x70 0x5 1x5",
    'vigil_sessions_refused_total{reason="engines",instance="a"}': "0x65 1x15",
    "vigil_webhook_late_seconds": "2x70 90x5 2x5",
}
"""What is over before anybody could look."""
WELL = {
    'up{job="vigil",instance="a"}': "1x80",
    'vigil_engine_up{engine="e"}': "1x80",
    "vigil_engine_ready": "1x80",
    'vigil_engine_lateness_periods{engine="e"}': "0.9x80",
    'vigil_engine_real_time_factor{engine="e"}': "0.5x80",
    'vigil_engine_reuse_ratio{engine="e"}': "1x80",
    'vigil_tick_failures_total{code="engine_timeout",engine="e",instance="a"}': "0x40 1x40",
    'vigil_ticks_total{action="silence",reason="model",instance="a"}': "0+15x80",
    'vigil_sessions_refused_total{reason="engines",instance="a"}': "3x80",
    'vigil_sessions_refused_total{reason="quota",instance="a"}': "0+1x80",
    'vigil_store_write_seconds_bucket{le="1",instance="a"}': "0+9x80",
    'vigil_store_write_seconds_bucket{le="+Inf",instance="a"}': "0+9x80",
    'vigil_store_failures_total{instance="a"}': "2x80",
    'vigil_leases_lost_total{instance="a"}': "1x80",
    'vigil_heartbeats_late_total{instance="a"}': "1x80",
    "vigil_webhook_late_seconds": "2x80",
}


def promtool(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    assert program, "promtool is missing: `make system` installs Debian's package `prometheus`"
    return subprocess.run([program, *arguments], input=given, capture_output=True, text=True, timeout=150)


def scenario(series: dict[str, str], firing: list[str]) -> dict[str, object]:
    alerts = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing]
    return {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "19m",
                "exp_samples": alerts,
            }
        ],
    }


def test_alerts_fire_when_they_should_and_not_when_all_is_well(tmp_path: Path) -> None:
    assert set(BAD) == {rule["alert"] for rule in rules()}
    scenarios = [scenario(series, [alert]) for alert, series in [*BAD.items(), *ALSO_BAD]]
    none = [scenario(series, []) for series in (WELL, BRIEF)]
    file = tmp_path / "alerts_test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [*scenarios, *none]}))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_scrape_configuration_and_the_dashboards_expressions_are_sound(tmp_path: Path) -> None:
    done = promtool("check", "config", str(ROOT / "deploy/prometheus.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    expressions = [each for told in panels().values() for each in told]
    recorded = [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(expressions)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    done = promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
