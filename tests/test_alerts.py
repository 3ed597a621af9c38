"""Alert rules: every figure that they name is in a scrape of a served session."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine

RULES = Path(__file__).parents[1] / "deploy" / "alerts.yaml"


async def test_every_figure_is_there(tmp_path: Path) -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    async with FakeEngine(["</silence>"], image_tokens=16) as fake, Served(fake, tmp_path) as served:
        assert (await served.see(0, "Say.")).status_code == 200
        text = (await served.client.get("/metrics")).text
    known = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    for rule in rules:
        told = [rule["expr"], *rule["annotations"].values()]
        named = {name.removesuffix("_bucket") for each in told for name in re.findall(r"\bvigil_\w+", each)}
        assert named and named <= known, rule["alert"]
