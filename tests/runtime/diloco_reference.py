"""DiLoCo and Streaming DiLoCo in one process, as the papers write them down: what ranks must come to."""

import copy
from collections.abc import Callable, Sequence

import torch

Step = Callable[[torch.nn.Module, torch.optim.Optimizer, int, int], None]
"""One inner step of a model, by its number, of a replica."""


def network() -> torch.nn.Module:
    """In float64, of layers that nothing divides."""
    torch.manual_seed(3)
    layers = [torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)]
    return torch.nn.Sequential(*layers).double()


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def loss(model: torch.nn.Module, step: int, replica: int) -> torch.Tensor:
    """On numbers of that step and replica."""
    generator = torch.Generator().manual_seed(1000 * step + replica)
    x = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    y = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    kind = next(model.parameters()).dtype
    return torch.nn.functional.mse_loss(model(x.to(kind)), y.to(kind))


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int, replica: int) -> None:
    optimizer.zero_grad()
    loss(model, step, replica).backward()
    optimizer.step()


def together(
    models: Sequence[torch.nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    weights: Sequence[float],
    step: int,
) -> None:
    """One step of all with the mean of their gradients."""
    for replica, model in enumerate(models):
        model.zero_grad()
        loss(model, step, replica).backward()
    for same in zip(*(model.parameters() for model in models), strict=True):
        with torch.no_grad():
            mean = sum(one.grad * (weight / sum(weights)) for one, weight in zip(same, weights, strict=True))
        for one in same:
            one.grad.copy_(mean)
    for optimizer in optimizers:
        optimizer.step()


def trained(
    weights: Sequence[float],
    num_steps: int,
    sync_every: int,
    parts: Sequence[Sequence[str]] | None = None,
    delay: int = 0,
    mixing: float = 0.0,
    step: Step = train,
    make: Callable[[], torch.nn.Module] = network,
    inner: Callable[[torch.nn.Module], torch.optim.Optimizer] = adamw,
    outer: Callable[[list[torch.Tensor]], torch.optim.Optimizer] | None = None,
    warmup: int = 0,
) -> torch.nn.Module:
    """The model that all replicas of these weights have after so many steps and a last outer step."""
    anchor = make()
    models = [copy.deepcopy(anchor) for _ in weights]
    optimizers = [inner(model) for model in models]
    named = dict(anchor.named_parameters())
    fragments = [list(part) for part in parts or [list(named)]]
    rate, momentum = (0.7, 0.9) if delay else (1.0, 0.5)
    make_outer = outer or (lambda ps: torch.optim.SGD(ps, lr=rate, momentum=momentum, nesterov=True))
    outers = [make_outer([named[name] for name in names]) for names in fragments]
    under_way: list[tuple[int, int, list[torch.Tensor]]] = []
    begun = [0] * len(fragments)

    def begin(number: int, now: int) -> None:
        begun[number] = now
        owns = [dict(model.named_parameters()) for model in models]
        gradients = [
            sum((named[name] - own[name]) * (weight / sum(weights)) for own, weight in zip(owns, weights, strict=True))
            for name in fragments[number]
        ]
        under_way.append((now, number, [one.detach() for one in gradients]))

    def merge(kept: float) -> None:
        _, number, gradients = under_way.pop(0)
        for name, gradient in zip(fragments[number], gradients, strict=True):
            named[name].grad = gradient
        outers[number].step()
        for model in models:
            for name, own in model.named_parameters():
                if name in fragments[number]:
                    own.mul_(kept).add_(named[name], alpha=1 - kept)

    for now in range(1, warmup + 1):
        together(models, optimizers, weights, now)
    with torch.no_grad():
        for name, one in models[0].named_parameters():
            named[name].copy_(one)
    for now in range(warmup + 1, num_steps + 1):
        for replica, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            step(model, optimizer, now, replica)
        with torch.no_grad():
            for number in range(len(fragments)):
                due = now - warmup - (number + 1) * sync_every // len(fragments)
                if due >= 0 and due % sync_every == 0:
                    begin(number, now)
            while under_way and now - under_way[0][0] >= delay:
                merge(mixing)
    with torch.no_grad():
        while under_way:
            merge(0.0 if under_way[0][0] == num_steps else mixing)
        for number in range(len(fragments)):
            if begun[number] < num_steps:
                begin(number, num_steps)
        while under_way:
            merge(0.0)
    return models[0]
