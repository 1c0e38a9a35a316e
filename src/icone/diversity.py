"""The old place of `icone.nn.diversity`; both names import the same package."""

import sys

from icone.nn import diversity

sys.modules[__name__] = diversity
