"""Data parallel training of a small language model in JAX: one process per device or per host, the batch sharded over a
mesh of all devices, weights replicated. On CPUs the processes exchange gradients over gloo."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import run
from entry_common import byte_sequences, learning_rate, options, parsed, remove_old, samples_of, saved_steps


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--width", type=int, default=64)
    given = parsed(parser)
    run.listen()

    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    here = run.place()
    if not os.environ.get("CUDA_VISIBLE_DEVICES"):
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if here.world_size > 1:
        coordinator = f"{here.master_addr}:{coordinator_port(here.master_port)}"
        # Every rank sees all GPUs of its node, and JAX would take them all.
        jax.distributed.initialize(coordinator, here.world_size, here.rank, local_device_ids=[here.local_rank])
    mesh = Mesh(np.array(jax.devices()), ("data",))
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))

    data = [np.frombuffer(text, np.uint8) for text in byte_sequences(given)]
    steps = saved_steps(given.checkpoint, ".npz")
    done = steps[-1] if steps else 0
    state = load(given.checkpoint / f"step-{done}.npz") if done else start_state(given)
    state = jax.tree.map(lambda value: jax.make_array_from_callback(value.shape, whole, lambda at: value[at]), state)
    update = jax.jit(partial(adam_step, given=given), donate_argnums=0)

    for step in range(done + 1, given.steps + 1):
        mine = np.stack([data[index] for index in samples_of(step, len(data), given)]).astype(np.int32)
        batch = jax.make_array_from_process_local_data(split, mine)
        lr = learning_rate(step, given)
        state, loss = update(state, batch, lr, step)
        run.progress(step, float(loss), total=given.steps, lr=lr)
        stop = agreed_stop(run.should_stop(), here.world_size)
        if stop or step % given.checkpoint_steps == 0 or step == given.steps:
            save(given, state, step)
        if stop and step < given.steps:
            run.exit_saved()
    run.finish(given.steps)


def coordinator_port(port: int) -> int:
    """JAX's own meeting point: it follows from the launcher's port, and lies below those that the kernel gives out."""
    return 20_000 + port % 10_000


def start_state(given: Any) -> dict[str, Any]:
    """Weights of a two-layer network over the last eight bytes, and Adam's two moments."""
    dice = np.random.default_rng(given.seed)
    width = given.width
    shapes = {"embed": (256, width), "mix": (8 * width, 4 * width), "out": (4 * width, 256)}
    weights = {name: (dice.standard_normal(s) / np.sqrt(s[0])).astype(np.float32) for name, s in shapes.items()}
    zeros = {name: np.zeros_like(value) for name, value in weights.items()}
    return {"weights": weights, "first": zeros, "second": {name: value.copy() for name, value in zeros.items()}}


def adam_step(state: Any, batch: Any, lr: float, step: int, *, given: Any) -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp

    kind = jnp.bfloat16 if given.precision == "bf16" else jnp.float32

    def loss_of(weights: Any) -> Any:
        known, targets = batch[:, :-1], batch[:, 1:]
        seen = weights["embed"][jnp.pad(known, ((0, 0), (7, 0)))]
        windows = jnp.concatenate([seen[:, at : at + known.shape[1]] for at in range(8)], axis=-1)
        hidden = jax.nn.gelu(windows.astype(kind) @ weights["mix"].astype(kind))
        scores = (hidden @ weights["out"].astype(kind)).astype(jnp.float32)
        picked = jnp.take_along_axis(jax.nn.log_softmax(scores), targets[..., None], axis=-1)
        return -picked.mean()

    loss, slopes = jax.value_and_grad(loss_of)(state["weights"])
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(slopes)))
    slopes = jax.tree.map(lambda g: g * jnp.minimum(1.0, given.clip / norm), slopes)
    one, two = given.beta1, given.beta2
    first = jax.tree.map(lambda m, g: one * m + (1 - one) * g, state["first"], slopes)
    second = jax.tree.map(lambda v, g: two * v + (1 - two) * g * g, state["second"], slopes)
    decay = 1 - lr * given.weight_decay
    weights = jax.tree.map(
        lambda w, m, v: decay * w - lr * (m / (1 - one**step)) / (jnp.sqrt(v / (1 - two**step)) + 1e-8),
        state["weights"], first, second,
    )  # fmt: skip
    return {"weights": weights, "first": first, "second": second}, loss


def agreed_stop(stop: bool, processes: int) -> bool:
    """Every process leaves after the same step."""
    if processes == 1:
        return stop
    from jax.experimental.multihost_utils import process_allgather

    return bool(process_allgather(np.array(stop)).any())


def save(given: Any, state: Any, step: int) -> None:
    """The state is the same everywhere: process 0 writes it under another name and then renames the file."""
    if run.place().rank == 0:
        parts = {f"{kind}/{name}": np.asarray(value) for kind, group in state.items() for name, value in group.items()}
        unfinished = given.checkpoint / "unfinished.npz"
        np.savez(unfinished, **parts)
        os.replace(unfinished, given.checkpoint / f"step-{step}.npz")
        remove_old(given.checkpoint, given.keep, ".npz")


def load(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = {}
    with np.load(path) as stored:
        for key in stored.files:
            kind, _, name = key.partition("/")
            state.setdefault(kind, {})[name] = stored[key]
    return state


if __name__ == "__main__":
    main()
