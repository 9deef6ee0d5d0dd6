# expect: 14:14
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def main() -> None:
    dist.init_process_group("nccl")
    dataset = torch.load("/fsx/shapes.pt")
    device = torch.device("cuda", dist.get_rank() % 8)
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    for _ in range(4):
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
