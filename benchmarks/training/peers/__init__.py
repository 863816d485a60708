"""Other toolkits as contenders, with the same weights and batches as ours.

Each has the size of the workload, PreNorm, LayerNorm, sinusoids, and one table for both embeddings
and the output. It starts from our weights, so its loss on the first batch must equal ours. Model,
loss and optimizer are the toolkit's own, and so is the update where the toolkit has a function for
it. bf16 is ``torch.autocast``, also where a toolkit's own trainer uses it on GPUs only.

All are optional: a toolkit that raises ImportError is skipped. The authors' code is not a package;
add its folder to PYTHONPATH.
"""

from __future__ import annotations

from benchmarks.training.peer import Peer
from benchmarks.training.peers.authors import Authors
from benchmarks.training.peers.eole import Eole
from benchmarks.training.peers.fairseq import Fairseq, HuggingFace
from benchmarks.training.peers.joeynmt import JoeyNMT
from benchmarks.training.peers.opennmt import OpenNMT
from benchmarks.training.peers.sockeye import Sockeye

PEERS: dict[str, type[Peer]] = {
    "OpenNMT-py": OpenNMT,
    "Eole": Eole,
    "JoeyNMT": JoeyNMT,
    "Sockeye": Sockeye,
    "Hugging Face": HuggingFace,
    "fairseq": Fairseq,
    "authors' code": Authors,
}

__all__ = ["PEERS", "HuggingFace", "JoeyNMT", "OpenNMT"]
