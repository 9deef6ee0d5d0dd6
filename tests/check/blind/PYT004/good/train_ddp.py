"""Train a ResNet-50 on ImageNet with DistributedDataParallel."""
import os

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def make_loader(root, batch_size):
    transform = torchvision.transforms.Compose(
        [torchvision.transforms.RandomResizedCrop(224), torchvision.transforms.ToTensor()]
    )
    dataset = torchvision.datasets.ImageFolder(root, transform)
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    return DataLoader(dataset, batch_size, sampler=sampler, num_workers=8, pin_memory=True), sampler


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)

    loader, sampler = make_loader(os.environ["DATA_ROOT"], 256)
    net = DistributedDataParallel(torchvision.models.resnet50().cuda(), device_ids=[local_rank])
    optim = torch.optim.SGD(net.parameters(), lr=0.8, momentum=0.9, weight_decay=5e-5)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(optim, T_max=90)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    for epoch in range(90):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optim.zero_grad(set_to_none=True)
            loss = criterion(net(images.cuda(non_blocking=True)), labels.cuda(non_blocking=True))
            loss.backward()
            optim.step()
        sched.step()
        if dist.get_rank() == 0:
            state = {"net": net.module.state_dict(), "optim": optim.state_dict(), "epoch": epoch}
            torch.save(state, f"/fsx/resnet/{epoch:03d}.pt")

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
