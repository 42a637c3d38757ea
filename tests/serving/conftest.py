"""The taught policy and its sandbox."""

from taught import policy as policy
from taught import sandbox as sandbox
