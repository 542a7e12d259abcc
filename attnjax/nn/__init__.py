"""Modules for flax nnx: attention with any pattern, and what a decoder needs around it."""

from attnjax.nn.attention import Attention as Attention
from attnjax.nn.attention import WithWeights as WithWeights
from attnjax.nn.block import Block as Block
from attnjax.nn.embed import Embedding as Embedding
from attnjax.nn.embed import Head as Head
from attnjax.nn.flax_attention import attention_fn as attention_fn
from attnjax.nn.mlp import SwiGLU as SwiGLU
from attnjax.nn.norm import RMSNorm as RMSNorm
from attnjax.rope import Rope as Rope
from attnjax.rope_scaling import DynamicScaling as DynamicScaling
from attnjax.rope_scaling import LinearScaling as LinearScaling
from attnjax.rope_scaling import Llama3Scaling as Llama3Scaling
from attnjax.rope_scaling import YarnScaling as YarnScaling
