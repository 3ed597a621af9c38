"""Small records of our own in each public format."""

from __future__ import annotations

from typing import Any

JOYAI: dict[str, Any] = {
    "video_name": "kitchen.mp4",
    "video_path": "/data/kitchen.mp4",
    "task_type": "event_grounding",
    "source": "made_up",
    "question": [
        {"content": "Tell me when the pot boils.", "time": "4"},
        {"content": "What is this?", "time": "30"},
    ],
    "response": [[{"content": "It boils.", "time": "12"}], {"content": "A spoon.", "time": "31"}],
}
NARRATED = JOYAI | {
    "task_type": "narration",
    "question": [{"content": "Describe what happens.", "time": "0"}],
    "response": [{"content": "Stirring.", "time": "5,6,7"}, {"content": "Now salt.", "time": "7"}],
}
CONVERTED: dict[str, Any] = {
    "video_name": "kitchen.mp4",
    "task_type": "chat",
    "source": "made_up",
    "messages": [
        {"role": "user", "content": "<0.0 seconds>\n<image><image>"},
        {"role": "assistant", "content": "</silence>"},
        {"role": "user", "content": "Tell me when the pot boils.\n<1.0 seconds>\n<image>"},
        {"role": "assistant", "content": "</silence>"},
        {"role": "user", "content": "<2.0 seconds>\n<image>"},
        {"role": "assistant", "content": "</response> It boils."},
    ],
}
REMINDER: dict[str, Any] = {
    "id": 7,
    "split": "PR_event_reminder",
    "question_text": "Remind me when she sits down.",
    "question_audio": {"path": "q7.wav", "bytes": None},
    "answer1": "",
    "reminder1": 15.0,
    "reminder2": {"start": "40.5", "end": 41},
    "video_duration": 60,
    "video_type": "indoor",
    "video": {"path": "v7.mp4", "bytes": None},
}
CORRECTION: dict[str, Any] = {
    "id": "c",
    "split": "PR_correction",
    "question_text": "The ship is black.",
    "answer1": "The ship is white.",
    "video": "ship.mp4",
    "video_duration": 20,
}
DESCRIPTION: dict[str, Any] = {
    "id": "d",
    "split": "RTD_counting",
    "question_text": "Count the jumps aloud.",
    "answer1": "One. Two.",
    "video": "jump.mp4",
}
CHOICE: dict[str, Any] = {
    "id": 3,
    "task": "OCR",
    "video": "COIN/street.mp4",
    "realtime": 42.5,
    "question": "What does the sign say?",
    "options": ["Stop", "Go", "Wait"],
    "gt": 2,
}
CRR: dict[str, Any] = {
    "id": 9,
    "task": "CRR",
    "video": "street.mp4",
    "question": "Where does he go?",
    "answer": "Home.",
    "ask_time": 5,
    "clue_time": 20,
    "test_info": [{"realtime": 10, "type": 0}, {"realtime": 15, "type": 0}, {"realtime": 22, "type": 1}],
}
REC: dict[str, Any] = {
    "id": 11,
    "task": "REC",
    "video": "gym.mp4",
    "activity": "jump",
    "test_info": [{"realtime": 5, "count": 1}, {"realtime": 30, "count": 3}],
}
SSR: dict[str, Any] = {
    "id": 12,
    "task": "SSR",
    "video": "tea.mp4",
    "test_info": [
        {"realtime": 5, "type": 1, "step": "boil water"},
        {"realtime": 6, "type": 0, "step": "pour"},
    ],
}
PROACTIVE: dict[str, Any] = {
    "time": "[0:00:00 - 0:00:30]",
    "questions": [
        {
            "task_type": "Proactive Output",
            "question": 'When the board shows 3 points, output "3".',
            "time_stamp": "00:00:20",
            "ground_truth_time_stamp": "00:01:29",
            "ground_truth_output": "3",
            "required_ability": "working memory",
        },
        {
            "task_type": "Proactive Output",
            "question": 'When the whistle blows, output "foul".',
            "time_stamp": "00:01:00",
            "ground_truth_time_stamp": "00:01:10",
            "ground_truth_output": "foul",
            "required_ability": "working memory",
        },
    ],
    "video_categories": "basketball",
    "video_path": "./videos/sample_17.mp4",
}
