"""Other toolkits as contenders: the same weights, the same batches, each by its own parts.

Each has the size of the workload, PreNorm, LayerNorm, sinusoids and one table for both embeddings
and the output, and begins with the weights of one of ours; so its loss on the first batch must be
ours. Model, loss and optimizer are the toolkit's own, and where it has a function for a whole
update, that one is called. bf16 is ``torch.autocast``, also where a toolkit's own trainer offers it
on GPUs alone.

None of them is needed: one that raises ImportError is left out. The authors' code is no package;
its folder belongs into PYTHONPATH.
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
