"""Write the stand-in checkpoint: ``python build.py PROGRAM.json OUT_DIR``.

A Qwen3-VL in every respect but its size and its weights: stock engines load it like the real one. Runs as a
lone file inside the engine's virtual environment (torch, transformers, tokenizers), so it imports nothing of
Vigil; ``PROGRAM.json`` carries all it has to know (see ``checkpoint.py``).
"""

from __future__ import annotations

import json
import pydoc_data.topics
import re
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

PAD, END = "<|endoftext|>", "<|im_end|>"
CONTROL = [
    PAD,
    "<|im_start|>",
    END,
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PLAIN_ADDED = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
# How ordinary text is cut before merges: contractions, words, single digits, punctuation, white space.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def main() -> None:
    program_file, out = Path(sys.argv[1]), Path(sys.argv[2])
    program = json.loads(program_file.read_text())
    torch.manual_seed(0)
    tokenizer = build_tokenizer(program)
    check_pieces(tokenizer, program)
    config, model = build_model(program, tokenizer)
    model.save_pretrained(out, safe_serialization=True)
    write_json(out / "config.json", config)
    write_tokenizer(out, program, tokenizer)
    end, pad = token_id(tokenizer, END), token_id(tokenizer, PAD)
    write_json(
        out / "generation_config.json", {"eos_token_id": [end, pad], "pad_token_id": pad, "do_sample": False}
    )
    for name, content in program["files"].items():
        write_json(out / name, content)


# ---- tokenizer -------------------------------------------------------------------------------------------


def build_tokenizer(program: dict[str, Any]) -> Tokenizer:
    """Byte-level BPE that encodes any text and keeps each piece of the program in one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(f"{piece_pattern(program['pieces'])}|{WORDS}"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=program["sizes"]["trained_vocab"],
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    # English prose that every Python carries: enough for prompts of a natural length in tokens.
    tokenizer.train_from_iterator(list(pydoc_data.topics.topics.values()), trainer)
    tokenizer = with_pieces(tokenizer, program["pieces"])
    tags = program["tags"] if program["single_token_tags"] else []
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROL + tags])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in PLAIN_ADDED])
    return tokenizer


def piece_pattern(pieces: list[str]) -> str:
    """Whole words only; a piece of a mark (``</``, ``silence>``) is taken wherever it stands."""
    alternatives = []
    for piece in pieces:
        if re.search(r"[<>]", piece):
            alternatives.append(re.escape(piece))
        elif piece.strip():
            before = "" if piece[0].isspace() else r"(?<!\S)"
            alternatives.append(f"{before}{re.escape(piece)}(?!\\S)")
    return "|".join(alternatives) or r"(?!)"


def with_pieces(tokenizer: Tokenizer, pieces: list[str]) -> Tokenizer:
    """The same tokenizer with merges appended until every piece is one token."""
    state = json.loads(tokenizer.to_str())
    vocab, merges = state["model"]["vocab"], state["model"]["merges"]
    for piece in sorted(pieces):
        state["model"]["vocab"], state["model"]["merges"] = vocab, merges
        parts = Tokenizer.from_str(json.dumps(state)).encode(piece, add_special_tokens=False).tokens
        joined = parts[0]
        for part in parts[1:]:
            if joined + part not in vocab:
                vocab[joined + part] = len(vocab)
            merges.append([joined, part])
            joined += part
    return Tokenizer.from_str(json.dumps(state))


def check_pieces(tokenizer: Tokenizer, program: dict[str, Any]) -> None:
    for text, pieces in program["lines"].items():
        wanted = [token_id(tokenizer, piece) for piece in pieces]
        if tokenizer.encode(text, add_special_tokens=False).ids != wanted:
            got = tokenizer.encode(text, add_special_tokens=False).tokens
            sys.exit(f"the tokenizer cuts {text!r} into {got}, the program needs {pieces}")


def token_id(tokenizer: Tokenizer, text: str) -> int:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if len(ids) != 1:
        sys.exit(f"{text!r} is not a single token")
    return int(ids[0])


def write_tokenizer(out: Path, program: dict[str, Any], tokenizer: Tokenizer) -> None:
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "chat_template.jinja").write_text(program["chat_template"])


# ---- weights ---------------------------------------------------------------------------------------------


def build_model(program: dict[str, Any], tokenizer: Tokenizer) -> tuple[dict[str, Any], Any]:
    """The config to write and the model. Its blocks add nothing: logits depend on the last token alone."""
    sizes = program["sizes"]
    hidden, head = sizes["hidden"], sizes["head_dim"]
    vocab = (tokenizer.get_vocab_size(with_added_tokens=True) + 63) // 64 * 64
    third = head // 2 * 20 // 64
    rope = {
        "rope_type": "default",
        "rope_theta": 5000000,
        "mrope_interleaved": True,
        "mrope_section": [head // 2 - 2 * third, third, third],
    }
    config = Qwen3VLConfig(
        image_token_id=token_id(tokenizer, "<|image_pad|>"),
        video_token_id=token_id(tokenizer, "<|video_pad|>"),
        vision_start_token_id=token_id(tokenizer, "<|vision_start|>"),
        vision_end_token_id=token_id(tokenizer, "<|vision_end|>"),
        tie_word_embeddings=False,
        text_config={
            "vocab_size": vocab,
            "hidden_size": hidden,
            "intermediate_size": hidden,
            "num_hidden_layers": sizes["layers"],
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": head,
            "max_position_embeddings": sizes["positions"],
            "rope_parameters": rope,
            "rope_theta": rope["rope_theta"],
            "eos_token_id": token_id(tokenizer, END),
            "bos_token_id": token_id(tokenizer, PAD),
            "pad_token_id": token_id(tokenizer, PAD),
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": hidden,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": [0, 1][: sizes["layers"]],
        },
    )
    model = Qwen3VLForConditionalGeneration(config).to(torch.bfloat16).eval()
    with torch.no_grad():
        language = model.model.language_model
        for layer in language.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        embeddings, norm, head_weights = programmed_weights(program, tokenizer, vocab)
        language.embed_tokens.weight.copy_(embeddings)
        language.norm.weight.copy_(norm)
        model.lm_head.weight.copy_(head_weights)
    written = config.to_dict()
    written["architectures"] = [type(model).__name__]
    written["dtype"] = "bfloat16"
    written["text_config"]["rope_scaling"] = rope  # the spelling of older readers
    return written, model


def programmed_weights(
    program: dict[str, Any], tokenizer: Tokenizer, vocab: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Embeddings, scale of the last norm and output weights.

    Every token with successors has a direction of its own, all others share direction 0, after which the
    answer ends. The norm is scaled so that a logit is exactly the weight of (next token, direction).
    """
    hidden = program["sizes"]["hidden"]
    states = sorted({before for before, _, _ in program["edges"]})
    if len(states) >= hidden:
        sys.exit(f"the script needs {len(states)} directions, the model has {hidden - 1}")
    direction = {token_id(tokenizer, text): index + 1 for index, text in enumerate(states)}
    embeddings = torch.zeros(vocab, hidden)
    for token in range(vocab):
        embeddings[token, direction.get(token, 0)] = 1.0
    logits = torch.full((vocab, hidden), program["never"])
    logits[token_id(tokenizer, END), 0] = 0.0
    for before, after, logit in program["edges"]:
        logits[token_id(tokenizer, after), direction[token_id(tokenizer, before)]] = logit
    return embeddings, torch.full((hidden,), hidden**-0.5), logits


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, default=str))


if __name__ == "__main__":
    main()
