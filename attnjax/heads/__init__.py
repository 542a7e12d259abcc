"""What the heads of a model do: scores from the literature, a table that names the heads, and why scores are scaled."""

from attnjax.heads.measure import measure as measure
from attnjax.heads.report import Named as Named
from attnjax.heads.report import Report as Report
from attnjax.heads.report import report as report
from attnjax.heads.saturation import Saturation as Saturation
from attnjax.heads.saturation import Softmaxed as Softmaxed
from attnjax.heads.saturation import saturation as saturation
from attnjax.heads.scores import copying as copying
from attnjax.heads.scores import duplicate_token as duplicate_token
from attnjax.heads.scores import entropy as entropy
from attnjax.heads.scores import first_token as first_token
from attnjax.heads.scores import induction as induction
from attnjax.heads.scores import learned_sink as learned_sink
from attnjax.heads.scores import mean_distance as mean_distance
from attnjax.heads.scores import prefix_matching as prefix_matching
from attnjax.heads.scores import previous_token as previous_token
from attnjax.heads.scores import sink_rate as sink_rate
