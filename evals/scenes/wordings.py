"""How each skill is asked for: the first wording is the plain one."""

from __future__ import annotations

WORDINGS: dict[str, tuple[str, ...]] = {
    "alert": (
        "Tell me when {a_kind} appears.",
        "Let me know as soon as you see {a_kind}.",
        "I am waiting for {a_kind}. Say so when it is there.",
    ),
    "every": (
        "Tell me every time {a_kind} appears.",
        "Say so each time {a_kind} comes up.",
        "Keep watching, and report every new {kind}.",
    ),
    "match": (
        "Tell me every time something {colour} appears.",
        "Name everything {colour} that comes up.",
        "Whenever something {colour} turns up, tell me what it is.",
    ),
    "leave": (
        "Tell me when the {kind} is gone.",
        "Let me know as soon as the {kind} disappears.",
        "Watch the {kind}, and say when it leaves.",
    ),
    "count": (
        "How many shapes do you see?",
        "How many shapes are there right now?",
        "Count the shapes in the picture, not the signs.",
    ),
    "tally": (
        "Count how often {a_kind} appears.",
        "Each time {a_kind} appears, tell me how many that makes.",
        "Keep a count of the {kind}s as they appear.",
    ),
    "look": ("What do you see?", "What is in the picture?", "List everything that is visible now."),
    "read": ("What does the sign say?", "Read the sign to me.", "Which word is written there?"),
    "translate": (
        "What does the sign mean in English?",
        "Translate the sign into English.",
        "I can't read this. What would it be in English?",
    ),
    "first": (
        "What was the first shape you saw?",
        "Which shape came first?",
        "Think back: what was the very first shape?",
    ),
    "before": (
        "Have you seen {a_kind}?",
        "Was there {a_kind} at any time?",
        "Has {a_kind} been shown so far?",
    ),
    "prior": (
        "Which shape came before the {kind}?",
        "What was the shape that appeared last before the {kind}?",
        "Before the {kind} turned up, which shape had turned up?",
    ),
    "colour": (
        "What colour was the {shape}?",
        "Which colour did the {shape} have?",
        "The {shape}: what colour?",
    ),
    "when": (
        "When did the {kind} appear?",
        "At what time did the {kind} come up?",
        "How many seconds into the stream did the {kind} appear?",
    ),
    "ago": (
        "How long ago did the {kind} appear?",
        "How many seconds ago did the {kind} come up?",
        "The {kind}: how many seconds is it since it appeared?",
    ),
    "still": (
        "Is the {kind} still there?",
        "Can you still see the {kind}?",
        "Has the {kind} stayed, yes or no?",
    ),
    "where": (
        "Is the {kind} on the left or on the right?",
        "On which side is the {kind}, left or right?",
        "Left or right: where is the {kind}?",
    ),
    "move": (
        "Which way does the {kind} move?",
        "Is the {kind} going left, right, up or down?",
        "In which direction is the {kind} moving?",
    ),
    "delegate": (
        "Find out who first drew a {shape}.",
        "Look up what {a_kind} costs in the shops.",
        "Search the web for the history of the {kind}.",
    ),
}
