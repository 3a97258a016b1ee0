"""Whether ``torch.compile`` pays off: the elementwise part of a Gaussian step, where fusing helps most."""

import os
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.common import in_turns, learner_for, ratio, steps_in_task
from metareplay.posteriors.divergences import kl
from metareplay.posteriors.families.gaussian import RHO_OFFSET, MeanFieldGaussian
from metareplay.posteriors.priors.gaussian import GaussianPrior

WEIGHTS = 478_410


def plain(mean: Tensor, rho: Tensor, noise: Tensor) -> Tensor:
    """A sample's sum and the prior's KL, in single operations that a compiler can fuse."""
    scale = F.softplus(rho + RHO_OFFSET)
    return (mean + scale * noise).sum() + 0.5 * (scale.square() + mean.square() - 1 - 2 * scale.log()).sum()


def ours(mean: Tensor, rho: Tensor, noise: Tensor) -> Tensor:
    """The same with the package's divergence."""
    q = MeanFieldGaussian(mean, F.softplus(rho + RHO_OFFSET))
    return torch.addcmul(q.mean, q.scale, noise).sum() + kl(q, GaussianPrior())


def table(rounds: int) -> str:
    """Seconds of a forward and backward pass on one core, and after how many steps compiling pays off."""
    torch.set_num_threads(1)
    mean, rho = (torch.randn(WEIGHTS, requires_grad=True) for _ in range(2))
    noise = torch.randn(WEIGHTS)
    # an earlier process's cache would hide the warm-up
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
    compiled = torch.compile(plain)
    began = time.perf_counter()
    torch.autograd.grad(compiled(mean, rho, noise), (mean, rho))
    warm_up = time.perf_counter() - began
    functions = {"single operations": plain, "here": ours, "compiled": compiled}
    exact = torch.autograd.grad(plain(mean.double(), rho.double(), noise.double()), (mean, rho))
    errors = {}
    for name, function in functions.items():
        gradients = torch.autograd.grad(function(mean, rho, noise), (mean, rho))
        errors[name] = max(float((value - true).abs().max()) for value, true in zip(gradients, exact, strict=True))
    actions = {
        name: (lambda function=function: torch.autograd.grad(function(mean, rho, noise), (mean, rho)))
        for name, function in functions.items()
    }
    steps = steps_in_task(learner_for("fine-tuning", training__batch_size=128), 0)
    seconds = in_turns({**actions, "fine-tuning": lambda: next(steps)}, rounds)
    lines = [
        "| elementwise part of a Gaussian step, 478,410 weights | fine-tuning steps | largest error of a gradient |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {ratio(seconds[name], seconds['fine-tuning']):.2f} | {errors[name]:.1e} |" for name in functions
    ]
    saved = sorted(a - b for a, b in zip(seconds["here"], seconds["compiled"], strict=True))[rounds // 2]
    after = f"after {warm_up / saved:,.0f} steps" if saved > 0 else "never"
    return "\n".join([*lines, "", f"Compiling takes {warm_up:.0f} s, which is saved {after}."])
