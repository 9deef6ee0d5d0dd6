# expect: 6:1
# expect: 8:1
# expect: 9:1
# expect: 10:1
FROM ubuntu:24.04
RUN export CUDA_HOME=/usr/local/cuda-12.8
RUN pip install torch==2.9.0 && ls $CUDA_HOME/lib64
RUN cd /opt/train
RUN source /opt/venv/bin/activate && pip install deepspeed==0.18.9
CMD ["torchrun", "--nproc_per_node=$NGPU", "train.py"]
