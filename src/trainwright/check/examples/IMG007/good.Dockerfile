FROM ubuntu:24.04
ENV CUDA_HOME=/usr/local/cuda-12.8
RUN pip install torch==2.9.0 && ls $CUDA_HOME/lib64
WORKDIR /opt/train
RUN . /opt/venv/bin/activate && pip install deepspeed==0.18.9
CMD ["/bin/sh", "-c", "exec torchrun --nproc_per_node=$NGPU train.py"]
