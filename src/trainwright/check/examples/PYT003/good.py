import torch
import torch.distributed as dist


def resume(model, optimizer, path):
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def train(model, batches):
    dist.init_process_group("nccl")
    optimizer = torch.optim.AdamW(model.parameters())
    start = resume(model, optimizer, "/fsx/checkpoints/last.pt")
    for batch in batches[start:]:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": start}
        torch.save(state, "/fsx/checkpoints/last.pt")
