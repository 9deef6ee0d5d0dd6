# expect: 11:11
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from images import ImageNet, ViT

dist.init_process_group("nccl")
dataset = ImageNet("/fsx/imagenet/train")
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=256, sampler=sampler, num_workers=8)
model = DistributedDataParallel(ViT().cuda())
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(90):
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
