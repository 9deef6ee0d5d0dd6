# expect: 21:9
import torch
import torch.distributed as dist


def resume(model, path):
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    return state["step"]


def train(model, batches):
    dist.init_process_group("nccl")
    optimizer = torch.optim.AdamW(model.parameters())
    start = resume(model, "/fsx/checkpoints/last.pt")
    for batch in batches[start:]:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "step": start}, "/fsx/checkpoints/last.pt")
