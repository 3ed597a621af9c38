"""For each skill: what it can be asked about at a moment of a scene, and what is right to say then.

Each function answers ``None`` where nothing can be asked without doubt: a kind that came twice where once is
meant, a thing that comes or goes just then, no sign to read.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, permutations

from evals.scenes.levels import WORDS
from evals.scenes.rights import Asked, At, Right, unique
from evals.scenes.spec import Kind, Sign, Span, Thing
from evals.scenes.truth import an, first_frame, introduced, last_frame, spans_of, visible

_RARE = 0.2
"""Share of alerts for something that does not come while the question stands."""
_SIDE = 0.12
"""How far from the middle is clearly left or right."""
_SPEED = 0.015
"""Least speed that is clearly a motion, in shares of the picture a second."""


def _alert(at: At) -> Asked | None:
    """For one that comes once while the question stands, or does not come at all."""
    coming = {kind: at.coming(kind) for kind in [*at.kinds(), *at.strangers()]}
    wanted = 0 if at.rng.random() < _RARE else 1
    fitting = [kind for kind, found in coming.items() if len(found) == wanted]
    kind = at.pick(fitting or [kind for kind, found in coming.items() if not found])
    if kind is None:
        return None
    return _about(kind), [_appears(at, "alert", *one) for one in coming[kind]]


def _every(at: At) -> Asked | None:
    coming = {kind: at.coming(kind) for kind in at.kinds()}
    most = max((len(found) for found in coming.values()), default=0)
    kind = at.pick([kind for kind, found in coming.items() if len(found) >= min(2, most)])
    if kind is None:
        return None
    return _about(kind), [_appears(at, "repeat", *one) for one in coming[kind]]


def _match(at: At) -> Asked | None:
    """Of a colour whose things come one after the other."""
    coming = {c: at.coming_in(c) for c in unique(k.colour for k in at.kinds())}
    colour = at.pick([c for c, found in coming.items() if _apart([first_frame(one[0]) for one in found])])
    if colour is None:
        return None
    return {"colour": colour}, [_appears(at, "repeat", *one) for one in coming[colour]]


def _apart(frames: list[int]) -> bool:
    return all(after - before > 1 for before, after in pairwise(frames))


def _appears(at: At, right: str, from_s: float, thing: Thing, span: Span) -> Right:
    return at.moment(right, from_s, f"{an(str(thing.kind))} appears.", [str(thing.kind)], span)


def _leave(at: At) -> Asked | None:
    """For one that is there."""
    there = [item for item in visible(at.scene, at.now) if isinstance(item, Thing)]
    thing = at.pick([thing for thing in there if len(at.coming(thing.kind)) == 1])
    if thing is None or not at.steady():
        return None
    end = next(end for start, end in thing.spans if start <= at.now < end)
    told = f"The {thing.kind} is gone."
    gone = first_frame(end) < at.until_s
    rights = [at.moment("alert", end, told, [str(thing.kind)], (end, at.until_s))] if gone else []
    return _about(thing.kind), rights


def _count(at: At) -> Asked | None:
    things = [item for item in visible(at.scene, at.now) if isinstance(item, Thing)]
    if not at.steady():
        return None
    return {}, at.answer(f"{len(things)}.", [str(len(things))], "number", _now(at))


def _tally(at: At) -> Asked | None:
    asked = _every(at)
    if asked is None:
        return None
    about, rights = asked
    return about, [
        Right("count", r.start_s, r.end_s, f"{n}.", (str(n),), "number", r.evidence)
        for n, r in enumerate(rights, 1)
    ]


def _look(at: At) -> Asked | None:
    if not at.steady():
        return None
    told = [introduced(item) for item in visible(at.scene, at.now)] or ["Nothing"]
    if len(told) > 3:
        return {}, at.answer(_list(told), [_list(told)], "judge", _now(at))
    return {}, at.answer(_list(told), [_list(list(p)) for p in permutations(told)], "exact", _now(at))


def _list(parts: list[str]) -> str:
    """``A red circle, a blue star.``"""
    return ", ".join([parts[0], *(part[0].lower() + part[1:] for part in parts[1:])]) + "."


def _sign(at: At) -> Sign | None:
    """The one sign there is."""
    signs = [item for item in visible(at.scene, at.now) if isinstance(item, Sign)]
    return signs[0] if len(signs) == 1 and at.steady() else None


def _read(at: At) -> Asked | None:
    sign = _sign(at)
    return None if sign is None else ({}, at.answer(f"{sign.word}.", [sign.word], "contains", _now(at)))


def _translate(at: At) -> Asked | None:
    sign = _sign(at)
    if sign is None or WORDS[sign.word][0] == "en":
        return None
    english = WORDS[sign.word][1]
    return {}, at.answer(f"{english.capitalize()}.", [english], "contains", _now(at))


def _first(at: At) -> Asked | None:
    things = [(first, last, item) for first, last, item in at.seen() if isinstance(item, Thing)]
    if not things or (len(things) > 1 and things[0][0] == things[1][0]):
        return None
    first, last, thing = things[0]
    return {}, at.answer(f"{an(str(thing.kind))}.", [str(thing.kind)], "contains", (first, last))


def _before(at: At) -> Asked | None:
    """Yes for one that has gone, never for one that is there; no for one that shares a colour or shape.

    That something was never seen takes all that was, from the first frame on.
    """
    evidence: Span | None = (0.0, 0.0)
    if at.rng.random() < 0.5:
        kind, told = at.pick(at.strangers()), "No"
    else:
        there = [item.kind for item in visible(at.scene, at.now) if isinstance(item, Thing)]
        kind, told = at.pick([kind for kind in at.kinds_seen() if kind not in there]), "Yes"
        evidence = _seen(at, kind) if kind else None
    return None if kind is None else (_about(kind), at.answer(f"{told}.", [told], "yes_no", evidence))


def _prior(at: At) -> Asked | None:
    things = [(first, last, item) for first, last, item in at.seen() if isinstance(item, Thing)]
    once = [n for n in range(1, len(things)) if sum(t[2].kind == things[n][2].kind for t in things) == 1]
    clear = [
        n for n in once if things[n - 1][0] < things[n][0] and (n == 1 or things[n - 2][0] < things[n - 1][0])
    ]
    n = at.pick(clear)
    if n is None:
        return None
    kind, answer = things[n][2].kind, things[n - 1][2].kind
    evidence = (float(things[n][0]), float(max(things[n][1], things[n][0])))
    return _about(kind), at.answer(f"{an(str(answer))}.", [str(answer)], "contains", evidence)


def _colour(at: At) -> Asked | None:
    """Of a shape that has been seen in one colour alone."""
    seen = at.kinds_seen()
    kind = at.pick([k for k in seen if sum(other.shape == k.shape for other in seen) == 1])
    if kind is None:
        return None
    told = at.answer(f"{kind.colour.capitalize()}.", [kind.colour], "contains", _seen(at, kind))
    return _about(kind), told


def _when(at: At) -> Asked | None:
    found = _once(at)
    if found is None:
        return None
    kind, second = found
    near = [str(second + off) for off in (0, -1, 1) if second + off >= 0]
    return _about(kind), at.answer(f"At {second} seconds.", near, "number", _seen(at, kind))


def _ago(at: At) -> Asked | None:
    found = _once(at)
    if found is None or at.now - found[1] < 3:
        return None
    kind, since = found[0], at.now - found[1]
    slack = max(1, since // 10)
    near = [str(since), *(str(since + off) for k in range(1, slack + 1) for off in (-k, k))]
    return _about(kind), at.answer(f"{since} seconds ago.", near, "number", _seen(at, kind))


def _once(at: At) -> tuple[Kind, int] | None:
    """A kind that has appeared once so far, and its second."""
    seen = [(first, item.kind) for first, _, item in at.seen() if isinstance(item, Thing)]
    kinds = [kind for _, kind in seen]
    one = at.pick([(first, kind) for first, kind in seen if kinds.count(kind) == 1])
    return one and (one[1], one[0])


def _still(at: At) -> Asked | None:
    if not at.steady():
        return None
    there = [item.kind for item in visible(at.scene, at.now) if isinstance(item, Thing)]
    stays = at.rng.random() < 0.5
    kind = at.pick([kind for kind in at.kinds_seen() if (kind in there) == stays])
    if kind is None:
        return None
    told = "Yes" if stays else "No"
    return _about(kind), at.answer(f"{told}.", [told], "yes_no", _now(at))


def _where(at: At) -> Asked | None:
    there = [item for item in visible(at.scene, at.now) if isinstance(item, Thing)]
    thing = at.pick([thing for thing in there if abs(thing.place(at.now)[0] - 0.5) > _SIDE])
    if thing is None or not at.steady():
        return None
    side = "left" if thing.place(at.now)[0] < 0.5 else "right"
    return _about(thing.kind), at.answer(f"{side.capitalize()}.", [side], "contains", _now(at))


def _move(at: At) -> Asked | None:
    """Of a thing that went one way for two seconds and goes on so for another."""
    if not at.steady():
        return None
    going = [
        (item, way)
        for item in visible(at.scene, at.now)
        if isinstance(item, Thing) and (way := _way(item, at.now)) is not None
    ]
    found = at.pick(going)
    if found is None:
        return None
    thing, way = found
    return _about(thing.kind), at.answer(f"{way.capitalize()}.", [way], "contains", (at.now - 2, at.now))


def _way(thing: Thing, now: float) -> str | None:
    places = [thing.place(now + step) for step in (-2, -1, 0, 1)]
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(places)]
    ways = set()
    for x, y in steps:
        if max(abs(x), abs(y)) < _SPEED or max(abs(x), abs(y)) < 2 * min(abs(x), abs(y)):
            return None
        ways.add(("right" if x > 0 else "left") if abs(x) > abs(y) else ("down" if y > 0 else "up"))
    return ways.pop() if len(ways) == 1 else None


def _delegate(at: At) -> Asked | None:
    """What no look at the picture answers: it is to be handed over, word for word."""
    kind = at.pick(at.kinds_seen())
    if kind is None:
        return None
    right = Right("delegate", at.at_s, min(at.at_s + 5, at.until_s), "One moment.", (), "any", None)
    return _about(kind), [right]


def _about(kind: Kind) -> dict[str, str]:
    return {"kind": str(kind), "a_kind": an(str(kind)).lower(), "shape": kind.shape}


def _now(at: At) -> Span:
    return float(at.now), float(at.now)


def _seen(at: At, kind: Kind) -> Span:
    """From the first frame that has shown it to the last so far."""
    spans = [span for span in spans_of(at.scene, kind) if first_frame(span[0]) <= at.now]
    return float(first_frame(spans[0][0])), float(min(last_frame(spans[-1][1]), at.now))


ASKED: dict[str, Callable[[At], Asked | None]] = {
    "alert": _alert,
    "every": _every,
    "match": _match,
    "leave": _leave,
    "count": _count,
    "tally": _tally,
    "look": _look,
    "read": _read,
    "translate": _translate,
    "first": _first,
    "before": _before,
    "prior": _prior,
    "colour": _colour,
    "when": _when,
    "ago": _ago,
    "still": _still,
    "where": _where,
    "move": _move,
    "delegate": _delegate,
}
