"""Language models built from the modules."""

from attnjax.models.caches import Caches as Caches
from attnjax.models.config import Config as Config
from attnjax.models.decoder import Decoder as Decoder
from attnjax.models.decoder import WithWeights as WithWeights
from attnjax.models.generate import Generated as Generated
from attnjax.models.generate import generate as generate
from attnjax.models.load import load as load
from attnjax.models.load import load_attention as load_attention
from attnjax.models.presets import config as config
from attnjax.models.save import save as save
from attnjax.models.tokenizer import tokenizer as tokenizer
