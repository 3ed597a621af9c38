import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.scenes.spec import Backdrop, Camera, Kind, Scene, Thing, scene_from_json
from tests.evals.scenes.strategies import LENGTH_S, scenes


@given(scenes())
def test_a_scene_comes_back_from_json_as_it_was(scene):
    again = scene_from_json(scene.to_json())
    assert again == scene
    assert hash(again) == hash(scene)


@given(scenes(), st.data())
def test_places_are_in_the_picture_and_paths_have_no_jumps(scene, data):
    thing = data.draw(st.sampled_from(scene.things))
    start, end = thing.spans[0]
    t_s = data.draw(st.floats(start, end))
    x, y = thing.place(t_s)
    assert thing.size <= x <= 1 - thing.size and thing.size <= y <= 1 - thing.size
    near_x, near_y = thing.place(t_s + 0.01)
    assert abs(near_x - x) < 0.01 and abs(near_y - y) < 0.01


def test_a_thing_rests_before_and_after_its_path():
    thing = Thing(Kind("red", "circle"), 0.1, ((2.0, 0.2, 0.2), (4.0, 0.6, 0.4)), ((0.0, 9.0),), (1, 2, 3))
    assert thing.place(0.0) == (0.2, 0.2)
    assert thing.place(3.0) == pytest.approx((0.4, 0.3))
    assert thing.place(8.0) == (0.6, 0.4)


@given(scenes())
def test_frames_come_in_order_and_one_at_each_whole_second(scene):
    times = scene.frame_times()
    assert times == sorted(set(times))
    assert {float(second) for second in range(int(LENGTH_S))} <= set(times)


def test_a_camera_may_change_its_rate():
    behind = Backdrop(0.0, "flat", (0, 0, 0), (0, 0, 0))
    scene = Scene("s", 1, 4.0, (), (), (behind,), Camera(rates=((0.0, 1.0), (2.0, 2.0))))
    assert scene.frame_times() == [0.0, 1.0, 2.0, 2.5, 3.0, 3.5]


@pytest.mark.parametrize("text", ["", "{}", '{"things": 3}', "[]"])
def test_what_is_no_scene_is_refused(text):
    with pytest.raises((ValueError, KeyError, TypeError)):
        scene_from_json(text)
