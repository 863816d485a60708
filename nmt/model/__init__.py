"""The encoder-decoder transformer and its layers.

Read transformer, base, layers, attention, norms, embedding and layout first, then cache and
incremental, which decode. Without recompute, lora and cpu, the model computes the same.
Papers: Nguyen = Nguyen & Salazar 2019 ("Transformers without Tears"), NormFormer = Shleifer et al.
2021, Vaswani = Vaswani et al. 2017.

This file imports nothing, so that an exported folder translates without torch.
"""

UNK = 3  # id of the unknown token, by which word dropout replaces others

# The logit of a masked type: its probability is 0 in fp32, and the number is finite in fp16. The
# -1e9 of the authors' code is -inf in fp16, and -inf times the 0 of label smoothing is NaN.
MASKED_LOGIT = -1e4
