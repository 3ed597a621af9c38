"""What may be read: listed hosts, at addresses that are public or listed themselves."""

from __future__ import annotations

import pytest

from orchestrator.source_rules import SourceRules
from orchestrator.wire.errors import Forbidden, InvalidRequest


def rules(*hosts: str, answers: tuple[str, ...] = ()) -> SourceRules:
    return SourceRules(frozenset(hosts), resolve=lambda _host: list(answers))


def test_the_address_that_was_checked_is_the_one_that_is_asked() -> None:
    listed = rules("cam.example", answers=("93.184.216.34", "2606:2800::1"))
    url = listed.address("rtsp://me:pass@cam.example:8554/1?x=2")
    assert url == "rtsp://me:pass@93.184.216.34:8554/1?x=2"
    six = rules("cam.example", answers=("2606:2800::1",))
    assert six.address("rtsp://cam.example/1") == "rtsp://[2606:2800::1]/1"


@pytest.mark.parametrize(
    "answer",
    ["127.0.0.1", "10.0.0.8", "169.254.169.254", "::1", "fe80::1%eth0", "::ffff:10.0.0.8", "0.0.0.0"],
)
def test_a_name_does_not_lead_into_the_private_network(answer: str) -> None:
    with pytest.raises(Forbidden) as refused:
        rules("cam.example", answers=("93.184.216.34", answer)).address("rtsp://cam.example/1")
    assert refused.value.code == "source_not_allowed"
    with pytest.raises(OSError):
        rules("cam.example").address("rtsp://cam.example/1")


def test_listing_an_address_or_its_network_admits_it() -> None:
    for listed in ("10.0.0.8", "10.0.0.0/24"):
        both = rules("cam.lan", listed, answers=("10.0.0.8",))
        assert both.address("rtsp://cam.lan/1") == "rtsp://10.0.0.8/1"
        assert both.location("rtsp://10.0.0.8/1")
        with pytest.raises(Forbidden):
            both.location("rtsp://10.0.1.8/1")


@pytest.mark.parametrize(
    "wanted", ["rtsp://[bad/1", "rtsp://cam:99999/1", "a\0b", "ftp://cam/1", "file:///etc/passwd"]
)
def test_what_is_no_source_is_refused_in_order(wanted: str) -> None:
    with pytest.raises(InvalidRequest):
        rules("cam").location(wanted)


def test_the_web_is_asked_at_its_own_ports_and_at_those_that_are_listed() -> None:
    listed = rules("cam", "10.0.0.8:8080", "cam.example:8443", answers=("93.184.216.34",))
    for allowed in (
        "http://cam/1",
        "https://cam:443/1",
        "http://10.0.0.8:8080/1",
        "https://cam.example:8443/1",
    ):
        assert listed.address(listed.location(allowed))
    assert listed.location("rtsp://cam:8554/1"), "cameras have ports of all kinds"
    for refused in ("http://cam:22/1", "https://cam:80/1", "http://10.0.0.8/1", "https://cam.example/1"):
        with pytest.raises(Forbidden):
            listed.location(refused)


def test_a_name_and_port_may_lead_to_a_private_address_that_is_listed_with_the_port() -> None:
    both = rules("cam.lan:8080", "10.0.0.8:8080", answers=("10.0.0.8",))
    assert both.address(both.location("http://cam.lan:8080/1")) == "http://10.0.0.8:8080/1"
    with pytest.raises(Forbidden):
        rules("cam.lan:8080", answers=("10.0.0.8",)).address("http://cam.lan:8080/1")
