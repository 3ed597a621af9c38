"""What stands beside the weights of a stand-in, so that engines take it for one of the Qwen3-VL family."""

from __future__ import annotations

from typing import Any

PAD, END = "<|endoftext|>", "<|im_end|>"
SMALLEST_PICTURE, LARGEST_PICTURE = 65536, 16777216
"""Areas, as in the family."""


def tokenizer_config(template: str, positions: int) -> dict[str, Any]:
    """:param positions: longest prompt in tokens"""
    return {
        # The generic class takes tokenizer.json as it is; the family's own would cut words its own way.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "unk_token": None,
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": positions,
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "vision_start_token": "<|vision_start|>",
        "vision_end_token": "<|vision_end|>",
        "chat_template": template,
    }


def processors(smallest_picture: int) -> dict[str, dict[str, Any]]:
    """By file name. :param smallest_picture: area; a smaller one is enlarged"""
    shared = {
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
        "rescale_factor": 1 / 255,
        "processor_class": "Qwen3VLProcessor",
    }
    return {
        "preprocessor_config.json": {
            **shared,
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "size": {"shortest_edge": smallest_picture, "longest_edge": LARGEST_PICTURE},
        },
        "video_preprocessor_config.json": {
            **shared,
            "video_processor_type": "Qwen3VLVideoProcessor",
            "fps": 2,
            "min_frames": 4,
            "max_frames": 768,
            "size": {"shortest_edge": 4096, "longest_edge": 25165824},
        },
    }
