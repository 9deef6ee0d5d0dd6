# expect: 10:5
import torch
import torch.distributed as dist


def save(model, optimizer, step):
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    # Every rank comes here.

    torch.save(state, "/fsx/checkpoints/last.pt")


def train(model, optimizer, batches):
    dist.init_process_group("nccl")
    for step, batch in enumerate(batches):
        model(batch).sum().backward()
        optimizer.step()
        if step % 1000 == 0:
            save(model, optimizer, step)
