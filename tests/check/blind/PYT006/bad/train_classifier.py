"""Fine-tunes a text classifier on one or more nodes.

    torchrun --nproc_per_node 8 train_classifier.py --data data/reviews --epochs 4
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from reviews import ReviewDataset, TextClassifier


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--max-norm", type=float, default=1.0)
    parser.add_argument("--output", default="classifier.pt")
    return parser.parse_args()


def setup():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    return local_rank


def build_loader(root, split, batch_size):
    dataset = ReviewDataset(root, split)
    sampler = DistributedSampler(dataset, shuffle=split == "train", drop_last=split == "train")
    return DataLoader(dataset, batch_size, sampler=sampler, num_workers=4, pin_memory=True)


def build_scheduler(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return max(0.0, (total - step) / max(1, total - warmup))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    counts = torch.zeros(2, device="cuda")
    for tokens, labels in loader:
        predicted = model(tokens.cuda(non_blocking=True)).argmax(dim=-1)
        counts[0] += (predicted == labels.cuda(non_blocking=True)).sum()
        counts[1] += labels.numel()
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def train_epoch(model, loader, criterion, optimizer, scheduler, scaler, max_norm):
    model.train()
    for step, (tokens, labels) in enumerate(loader):
        tokens = tokens.cuda(non_blocking=True)
        labels = labels.cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(tokens), labels)
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        if step % 100 == 0 and dist.get_rank() == 0:
            print(f"  step {step}/{len(loader)} loss {loss.item():.4f}", flush=True)


def main():
    args = parse_args()
    local_rank = setup()
    train_loader = build_loader(args.data, "train", args.batch_size)
    valid_loader = build_loader(args.data, "valid", args.batch_size)
    model = DDP(TextClassifier(classes=5).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = build_scheduler(optimizer, args.warmup, args.epochs * len(train_loader))
    scaler = torch.amp.GradScaler("cuda")
    criterion = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        began = time.time()
        train_loader.sampler.set_epoch(epoch)
        train_epoch(model, train_loader, criterion, optimizer, scheduler, scaler, args.max_norm)
        accuracy = evaluate(model, valid_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {accuracy:.4f} ({time.time() - began:.0f}s)", flush=True)
            torch.save(model.module.state_dict(), args.output)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
