"""Muon for the matrices of the layers, Adam for everything else.

Muon steps along the momentum with all of its singular values set to about 1, so directions that
gradients seldom take are learned as fast as the others (Jordan et al. 2024, "Muon: An optimizer
for hidden layers in neural networks"). Each step has the size of Adam's steps (Liu et al. 2025,
"Muon is scalable for LLM training", equation 4), so a learning rate means the same for both.

torch.optim.Muon computes in bf16 on every device, 20 times as slow as fp32 on a CPU without bf16
instructions. It takes matrices one by one, and can neither clip nor skip inside a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

MOMENTUM = 0.95
STEPS = 5  # of Newton-Schulz
A, B, C = 3.4445, -4.7750, 2.0315  # a X + b XX'X + c XX'XX'X moves singular values towards 1
SIZE = 0.2  # root mean square of Adam's steps, as a share of the learning rate


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum over matrices, and fused AdamW over other parameters.

    As the fused kernels do, a step divides gradients by ``grad_scale`` and does nothing if
    ``found_inf`` is 1, without reading from the device.

    Args:
        matrices: parameters [a, b], updated by Muon.
        others: parameters of any shape, updated by AdamW.
        lr: a scalar tensor on the device, of both.
        betas, eps: of AdamW.
        weight_decay: of both, decoupled.
    """

    grad_scale: Tensor | None = None
    found_inf: Tensor | None = None

    def __init__(
        self,
        matrices: Sequence[Tensor],
        others: Sequence[Tensor],
        lr: Tensor,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        self._adam = torch.optim.AdamW(
            others, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True
        )
        super().__init__([{"params": matrices}], {"lr": lr, "weight_decay": weight_decay})
        self.defaults["fused"] = True
        self.param_groups += self._adam.param_groups
        self.state = self._adam.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters by their gradients."""
        assert closure is None
        self._adam.grad_scale, self._adam.found_inf = self.grad_scale, self.found_inf  # type: ignore[attr-defined]
        self._adam.step()
        group = self.param_groups[0]
        by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for matrix in group["params"]:
            by_shape[matrix.shape].append(matrix)
        for shape, matrices in by_shape.items():
            steps = orthogonalize(torch.stack([self._momentum(matrix) for matrix in matrices]))
            steps.mul_(-SIZE * max(shape) ** 0.5 * group["lr"])
            for matrix, step in zip(matrices, steps, strict=True):
                if group["weight_decay"]:
                    step.sub_(matrix * (group["lr"] * group["weight_decay"]))
                matrix.add_(step if self.found_inf is None else _unless(self.found_inf, step))

    def _momentum(self, matrix: Tensor) -> Tensor:
        """Update a matrix's momentum, and return that of Nesterov: one step ahead."""
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        gradient = matrix.grad
        assert gradient is not None
        if self.grad_scale is not None:
            gradient.div_(self.grad_scale)  # in place, as the fused kernels do
        if self.found_inf is not None:
            gradient = _unless(self.found_inf, gradient)
        moved = state["momentum"].lerp(gradient, 1 - MOMENTUM)
        if self.found_inf is not None:
            moved = torch.where(self.found_inf > 0, state["momentum"], moved)
        state["momentum"].copy_(moved)
        return gradient.lerp(moved, MOMENTUM)


def orthogonalize(x: Tensor) -> Tensor:
    """Set the singular values of matrices to about 1 (0.7 to 1.2), without decomposing them.

    Newton-Schulz steps are polynomials of the Gram matrix, so only the first and the last product
    involve the long side of a matrix. It takes half the time of multiplying it in each step.

    Args:
        x: [n, a, b], fp32: the Gram matrix squares the range of the singular values.
    """
    if x.shape[1] > x.shape[2]:
        return orthogonalize(x.mT).mT
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    gram = x @ x.mT
    identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    product = factor = _factor(gram, identity)
    for _ in range(STEPS - 1):
        gram = factor @ gram @ factor
        factor = _factor(gram, identity)
        product = factor @ product
    return product @ x


def _factor(gram: Tensor, identity: Tensor) -> Tensor:
    """What a step multiplies x by, from the Gram matrix of x."""
    return torch.baddbmm(gram, gram, gram, beta=B, alpha=C) + A * identity


def _unless(skip: Tensor, value: Tensor) -> Tensor:
    """Return the value, or zeros where a step is skipped, also for NaN."""
    return torch.where(skip > 0, 0.0, value)
