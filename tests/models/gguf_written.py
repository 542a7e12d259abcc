"""Small GGUF files, written by the gguf package."""

import gguf
import numpy as np

D, N, K, H, F, V, LAYERS = 32, 4, 2, 8, 64, 48, 2
LLAMA = {
    "block_count": LAYERS, "context_length": 128, "embedding_length": D, "feed_forward_length": F,
    "attention.head_count": N, "attention.head_count_kv": K, "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 20000.0, "rope.dimension_count": H, "vocab_size": V,
}  # fmt: skip
KINDS = gguf.GGMLQuantizationType


def shapes(tied=True):
    """GGUF's names of a llama's weights, and their shapes."""
    found = {"token_embd.weight": (V, D), "output_norm.weight": (D,)} | ({} if tied else {"output.weight": (V, D)})
    for i in range(LAYERS):
        inside = {
            "attn_norm": (D,), "attn_q": (N * H, D), "attn_k": (K * H, D), "attn_v": (K * H, D),
            "attn_output": (D, N * H), "ffn_norm": (D,), "ffn_gate": (F, D), "ffn_up": (F, D), "ffn_down": (D, F),
        }  # fmt: skip
        found |= {f"blk.{i}.{name}.weight": shape for name, shape in inside.items()}
    return found


def numbers(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def write(path, values=LLAMA, weights=None, kinds=None, architecture="llama", **more):
    """A file with these values of the architecture, others by their full name, and weights in kinds of their own."""
    weights, kinds = numbers(shapes()) if weights is None else weights, kinds or {}
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in [*((f"{architecture}.{name}", value) for name, value in values.items()), *more.items()]:
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
        add[type(value)](name, value)
    for name, weight in weights.items():
        kind = kinds.get(name, KINDS.F32)
        writer.add_tensor(name, gguf.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
