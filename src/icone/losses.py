"""The old place of `icone.nn.losses`; both names import the same package."""

import sys

from icone.nn import losses

sys.modules[__name__] = losses
