# expect: 9:13
import torch
import torch.distributed as dist
from models import model_and_loader
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("nccl")
model, loader = model_and_loader(dist.get_rank())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
model = FSDP(model, device_id=torch.cuda.current_device())
for tokens in loader:
    loss = model(tokens)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
