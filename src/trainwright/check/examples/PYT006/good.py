import torch
import torch.distributed as dist
from models import model_and_loader
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
model, loader = model_and_loader(dist.get_rank())
model = DDP(model.cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for tokens in loader:
    scaler.scale(model(tokens)).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
