FROM nvcr.io/nvidia/pytorch:25.03-py3
WORKDIR /workspace
COPY train.py /workspace/
CMD ["torchrun", "--standalone", "--nproc_per_node=8", "train.py"]
