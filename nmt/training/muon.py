"""Muon for the weight matrices of linear layers, AdamW for all other parameters.

Muon sets all singular values of the momentum to about 1 before it steps along it. Directions with
small gradients are then learned as fast as the others (Jordan et al. 2024, "Muon: An optimizer for
hidden layers in neural networks"). A step has the size of an Adam step (Liu et al. 2025, "Muon is
scalable for LLM training", equation 4), so one learning rate serves both.

Why not torch.optim.Muon: it computes in bf16 on every device, which is 20 times as slow as fp32 on
a CPU without bf16 instructions. This version computes in bf16 only if the run does. torch's also
processes matrices one by one, and cannot clip or skip within a step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

MOMENTUM = 0.95
NEWTON_SCHULZ_STEPS = 5
# one step maps X to A X + B XX'X + C XX'XX'X, which moves singular values towards 1
A, B, C = 3.4445, -4.7750, 2.0315
ADAM_RMS = 0.2  # root mean square of an Adam step, as a factor on the learning rate


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum for matrices, and fused AdamW for other parameters.

    Like torch's fused optimizers, a step divides gradients by ``grad_scale`` and does nothing if
    ``found_inf`` is 1, without reading from the device.

    Args:
        matrices: parameters [a, b] that Muon updates.
        adam_parameters: of any shape, which AdamW updates.
        lr: the learning rate of both, a scalar tensor on the device.
        betas, eps: of AdamW.
        weight_decay: of both, decoupled.
        dtype: fp32 or bf16, in which matrices are orthogonalized.
    """

    grad_scale: Tensor | None = None
    found_inf: Tensor | None = None

    def __init__(
        self,
        matrices: Sequence[Tensor],
        adam_parameters: Sequence[Tensor],
        lr: Tensor,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        dtype: torch.dtype,
    ) -> None:
        self._dtype = dtype
        self._adam = torch.optim.AdamW(  # a group, because a list may not be empty
            [{"params": adam_parameters}],
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            fused=True,
        )
        super().__init__([{"params": matrices}], {"lr": lr, "weight_decay": weight_decay})
        self.defaults["fused"] = True
        self.param_groups += self._adam.param_groups
        self.state = self._adam.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters from their gradients."""
        assert closure is None
        self._adam.grad_scale, self._adam.found_inf = self.grad_scale, self.found_inf  # type: ignore[attr-defined]
        self._adam.step()
        group = self.param_groups[0]
        by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for matrix in group["params"]:
            by_shape[matrix.shape].append(matrix)
        for shape, matrices in by_shape.items():
            momenta = torch.stack([self._update_momentum(m) for m in matrices])
            steps = orthogonalize(momenta, self._dtype)
            steps.mul_(-ADAM_RMS * max(shape) ** 0.5 * group["lr"])
            for matrix, step in zip(matrices, steps, strict=True):
                if group["weight_decay"]:
                    step.sub_(matrix * (group["lr"] * group["weight_decay"]))
                matrix.add_(step if self.found_inf is None else _zero_if(self.found_inf, step))

    def _update_momentum(self, matrix: Tensor) -> Tensor:
        """Update a matrix's momentum and return the Nesterov momentum, one step ahead."""
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        gradient = matrix.grad
        assert gradient is not None
        if self.grad_scale is not None:
            gradient.div_(self.grad_scale)  # in place, as the fused kernels do
        if self.found_inf is not None:
            gradient = _zero_if(self.found_inf, gradient)
        momentum = state["momentum"].lerp(gradient, 1 - MOMENTUM)
        if self.found_inf is not None:
            momentum = torch.where(self.found_inf > 0, state["momentum"], momentum)
        state["momentum"].copy_(momentum)
        return gradient.lerp(momentum, MOMENTUM)


def orthogonalize(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Set the singular values of matrices to about 1 (0.7 to 1.2) by Newton-Schulz steps.

    Args:
        x: [n, a, b], fp32.
        dtype: fp32, or bf16 as in Jordan et al. 2024, which is faster where the hardware has it.

    Returns:
        [n, a, b], fp32.
    """
    if x.shape[1] > x.shape[2]:
        return orthogonalize(x.mT, dtype).mT
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    if dtype is torch.float32:
        return _steps_on_gram_matrix(x)
    x = x.to(dtype, memory_format=torch.contiguous_format)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.float()


def _steps_on_gram_matrix(x: Tensor) -> Tensor:
    """Return the matrices after the steps, computed as polynomials of the Gram matrix.

    Only the first and the last product involve the long side of a matrix. This takes half the time
    of multiplying by x in each step, but needs fp32, because the Gram matrix squares the range of
    the singular values.
    """
    gram = x @ x.mT
    identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    product = factor = _step_factor(gram, identity)
    for _ in range(NEWTON_SCHULZ_STEPS - 1):
        gram = factor @ gram @ factor
        factor = _step_factor(gram, identity)
        product = factor @ product
    return product @ x


def _step_factor(gram: Tensor, identity: Tensor) -> Tensor:
    """Return the matrix that one step multiplies x by, from the Gram matrix of x."""
    return torch.baddbmm(gram, gram, gram, beta=B, alpha=C) + A * identity


def _zero_if(skip: Tensor, value: Tensor) -> Tensor:
    """Return zeros if ``skip`` is 1, also where the value is NaN; else the value."""
    return torch.where(skip > 0, 0.0, value)
