import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def main() -> None:
    dist.init_process_group("nccl")
    dataset = torch.load("/fsx/shapes.pt")
    device = torch.device("cuda", dist.get_rank() % 8)
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
