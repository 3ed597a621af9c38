"""Write a checkpoint that engines load: ``python -m evals.training.export WEIGHTS TOKENIZER OUT``.

Weights come as training left them; what is added are the files that say what they are.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from engine_launch.standin.files import processors, tokenizer_config
from evals.training.tokens import AFTER, BEFORE, END, PAD, PICTURE, load_tokenizer

POSITIONS = 262144
TEMPLATE = """\
{#- Layout of the Qwen3-VL family. -#}
{%- macro render(content) -%}
{%- if content is string -%}{{ content }}
{%- else -%}{%- for part in content -%}
{%- if part.type == 'image' or 'image' in part or 'image_url' in part -%}
{{ '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part.type == 'video' or 'video' in part -%}<|vision_start|><|video_pad|><|vision_end|>
{%- elif 'text' in part -%}{{ part.text }}{%- endif -%}
{%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + render(message.content) + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


def export(weights: Path, tokenizer_file: Path, out: Path) -> None:
    """Needs torch for the sizes it states (``network.Shape``), not for the weights themselves."""
    from evals.training.network import GRID, MERGE, PATCH, SIDE, Shape

    text = tokenizer_file.read_text()
    tokenizer = load_tokenizer(text)
    ids = {name: tokenizer.token_to_id(name) for name in (PAD, END, BEFORE, AFTER, PICTURE, "<|video_pad|>")}
    shape = Shape(tokenizer.get_vocab_size(with_added_tokens=True))
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(weights, out / "model.safetensors")
    (out / "tokenizer.json").write_text(text)
    (out / "chat_template.jinja").write_text(TEMPLATE)
    rope = {
        "rope_type": "default", "rope_theta": shape.theta, "mrope_interleaved": True,
        "mrope_section": list(shape.sections),
    }  # fmt: skip
    _write(
        out / "config.json",
        {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "model_type": "qwen3_vl",
            "dtype": "bfloat16",
            "tie_word_embeddings": False,
            "image_token_id": ids[PICTURE],
            "video_token_id": ids["<|video_pad|>"],
            "vision_start_token_id": ids[BEFORE],
            "vision_end_token_id": ids[AFTER],
            "text_config": {
                "model_type": "qwen3_vl_text",
                "vocab_size": shape.vocab,
                "hidden_size": shape.hidden,
                "intermediate_size": shape.between,
                "num_hidden_layers": shape.layers,
                "num_attention_heads": shape.heads,
                "num_key_value_heads": shape.key_heads,
                "head_dim": shape.head,
                "hidden_act": "silu",
                "max_position_embeddings": POSITIONS,
                "rms_norm_eps": 1e-6,
                "attention_bias": False,
                "rope_theta": shape.theta,
                "rope_parameters": rope,
                "rope_scaling": rope,
                "bos_token_id": ids[PAD],
                "eos_token_id": ids[END],
                "pad_token_id": ids[PAD],
            },
            "vision_config": {
                "model_type": "qwen3_vl_vision",
                "depth": shape.eye_layers,
                "hidden_size": shape.eye,
                "hidden_act": "gelu_pytorch_tanh",
                "intermediate_size": shape.eye_between,
                "num_heads": shape.eye_heads,
                "in_channels": 3,
                "patch_size": PATCH,
                "spatial_merge_size": MERGE,
                "temporal_patch_size": 2,
                "out_hidden_size": shape.hidden,
                "num_position_embeddings": GRID**2,
                "deepstack_visual_indexes": list(shape.deep),
            },
        },
    )
    _write(out / "tokenizer_config.json", tokenizer_config(TEMPLATE, POSITIONS))
    _write(
        out / "generation_config.json",
        {"eos_token_id": [ids[END], ids[PAD]], "pad_token_id": ids[PAD], "do_sample": False},
    )
    for name, content in processors(SIDE**2).items():
        _write(out / name, content)


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    export(*map(Path, sys.argv[1:4]))
