FROM nvidia/cuda:12.8.1-devel-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends python3-dev python3-venv && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install torch==2.9.0 setuptools==80.9.0
ENV PATH=/opt/venv/bin:$PATH NGPU=8
ENV CUDA_HOME=/usr/local/cuda-12.8
RUN ls $CUDA_HOME/lib64
WORKDIR /opt/train
RUN . /opt/venv/bin/activate && pip install deepspeed==0.18.9
COPY train.py /opt/train/
CMD ["/bin/sh", "-c", "exec torchrun --nproc_per_node=$NGPU train.py"]
