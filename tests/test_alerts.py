"""Alert rules and dashboard: every figure that they name is in a scrape of a served session."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine

DEPLOY = Path(__file__).parents[1] / "deploy"


async def test_every_figure_is_there(tmp_path: Path) -> None:
    groups = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    async with FakeEngine(["</silence>"], image_tokens=16) as fake, Served(fake, tmp_path) as served:
        assert (await served.see(0, "Say.")).status_code == 200
        text = (await served.client.get("/metrics")).text
    known = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    told_by = {rule["alert"]: [rule["expr"], *rule["annotations"].values()] for rule in rules}
    told_by |= {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in panels}
    for name_of, told in told_by.items():
        named = {name.removesuffix("_bucket") for each in told for name in re.findall(r"\bvigil_\w+", each)}
        assert named and named <= known, name_of
