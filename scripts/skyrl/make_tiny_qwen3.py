"""Writes a random-weight Qwen3 with a byte-level BPE tokenizer; no torch, no network.

usage: make_tiny_qwen3.py OUT_DIR
Needs numpy, safetensors, tokenizers. Embedding and head are untied with deviation .1: adapters do not touch them, and with
.02 the logits are capped so low that nothing can be learned.
"""
import json
import pathlib
import sys
import sysconfig

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, LAYERS, HEADS, KV, FFN, VOCAB, CONTEXT = 64, 2, 4, 2, 128, 512, 4096
STD, EMBED_STD = 0.02, 0.1
HEAD = HIDDEN // HEADS
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(out: pathlib.Path) -> Tokenizer:
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    corpus = sorted(map(str, pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")))[:60]
    tok.train(
        corpus,
        trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=[AddedToken(s, special=True) for s in SPECIALS],
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    tok.save(str(out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    return tok


def main(out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    tok = tokenizer(out)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "initializer_range": STD,
        "rms_norm_eps": 1e-6,
        "use_cache": True,
        "tie_word_embeddings": False,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": LAYERS,
        "layer_types": ["full_attention"] * LAYERS,
        "bos_token_id": tok.token_to_id("<|endoftext|>"),
        "eos_token_id": tok.token_to_id("<|im_end|>"),
        "pad_token_id": tok.token_to_id("<|endoftext|>"),
        "torch_dtype": "float32",
        "dtype": "float32",
    }
    (out / "config.json").write_text(json.dumps(config, indent=1))
    rng = np.random.default_rng(0)

    def w(*shape: int, std: float = STD) -> np.ndarray:
        return (rng.standard_normal(shape) * std).astype(np.float32)

    def one(n: int) -> np.ndarray:
        return np.ones(n, np.float32)

    t = {
        "model.embed_tokens.weight": w(VOCAB, HIDDEN, std=EMBED_STD),
        "model.norm.weight": one(HIDDEN),
        "lm_head.weight": w(VOCAB, HIDDEN, std=EMBED_STD),
    }
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        t[p + "input_layernorm.weight"] = one(HIDDEN)
        t[p + "post_attention_layernorm.weight"] = one(HIDDEN)
        t[p + "self_attn.q_proj.weight"] = w(HEADS * HEAD, HIDDEN)
        t[p + "self_attn.k_proj.weight"] = w(KV * HEAD, HIDDEN)
        t[p + "self_attn.v_proj.weight"] = w(KV * HEAD, HIDDEN)
        t[p + "self_attn.o_proj.weight"] = w(HIDDEN, HEADS * HEAD)
        t[p + "self_attn.q_norm.weight"] = one(HEAD)
        t[p + "self_attn.k_norm.weight"] = one(HEAD)
        t[p + "mlp.gate_proj.weight"] = w(FFN, HIDDEN)
        t[p + "mlp.up_proj.weight"] = w(FFN, HIDDEN)
        t[p + "mlp.down_proj.weight"] = w(HIDDEN, FFN)
    save_file(t, str(out / "model.safetensors"), metadata={"format": "pt"})


main(pathlib.Path(sys.argv[1]))
