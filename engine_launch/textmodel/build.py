"""Write the text model's checkpoint: ``python build.py MODEL.gguf OUT_DIR``.

Runs as a lone file with the engine's interpreter (torch, transformers) and the converter's packages on its
path, so it imports nothing of Vigil.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main() -> None:
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    # Without dequantising, the quantised blocks are kept, which no engine reads from a checkpoint folder.
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, quantization_config=GgufConfig(dequantize=True)
    ).to(torch.bfloat16)
    model.hf_quantizer, model.is_quantized = None, False
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(out)


if __name__ == "__main__":
    main()
