"""AutoInt."""

from fm2.networks.declaration import Network
from fm2.networks.options import ATTENTION

NETWORK = Network("AutoInt", "AutoInt: fields attend to each other", options=ATTENTION)
